"""The entry behind ``scripts/explain.py``: one pair of a finished run of TACT, taken apart.

It has a config of its own (``conf/explain.yaml``). Everything else about the run comes from its folder: the settings
from its identity, the fit from its checkpoint, and only after the seal of the target was checked.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from omegaconf import OmegaConf

from toolshift.settings.compose import load_settings
from toolshift.settings.convert import from_mapping
from toolshift.settings.errors import ConfigError, UserError
from toolshift.settings.nearest import suggestion
from toolshift.settings.options import conf_folder, option_body
from toolshift.settings.schema import Settings
from toolshift.settings.single import command, literal, overridden
from toolshift.settings.tree import as_mapping

if TYPE_CHECKING:
    import pandas as pd

    from toolshift.data.records import Capability
    from toolshift.evaluation.explanation import Candidate, ExplainedPair, Explanation, ListPlace, SourceTasks
    from toolshift.experiment.workspace import Workspace
    from toolshift.models.tact.path import Path as TactPath
    from toolshift.models.tact.requirements import TaskRequirements

KEYS = (
    "capability", "data.cache", "data.root", "encoder.path", "format", "paths.outputs", "run", "seed", "task",
)  # fmt: skip
# Taken as they stand: ids hold commas and brackets, and a hash may look like a number.
WORDS = ("capability", "run", "task")
SUPPORTED = "TACT and its variants (models whose target is toolshift.models.tact.tact:Tact)"
# Of several that fit, so many are named.
_LISTED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlace:
    """``root`` is the folder of real data; ``cache`` holds records, embeddings and evidence."""

    root: str | None
    cache: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderPlace:
    """``path``: folder of the encoder's weights, where the run was given one."""

    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPlace:
    """``outputs``: the folder that holds ``runs/``."""

    outputs: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainSettings:
    """``conf/explain.yaml``: which run, task, capability and seed, and how it is printed."""

    run: str
    task: str
    capability: str | None
    seed: int | None
    format: Literal["text", "json"]
    data: DataPlace
    encoder: EncoderPlace
    paths: OutputPlace


def main(arguments: Sequence[str]) -> int:
    """Check the command line, then print the explanation. Returns the exit status: 2 for a refused command."""
    return command("explain", arguments, lambda: explain(load(arguments)))


def load(arguments: Sequence[str], *, folder: Path | None = None) -> ExplainSettings:
    """``conf/explain.yaml`` with overrides.

    Raises:
        ConfigError: one line per problem, with the nearest valid key.
    """
    config = overridden(
        "explain", arguments, keys=KEYS, words=WORDS, word=_word, required=("run", "task"), folder=folder
    )
    return from_mapping(ExplainSettings, cast("Any", OmegaConf.to_container(config, resolve=True)))


def _word(key: str, value: str) -> str | None:
    """The text behind ``key=``, without quotes around it."""
    if key == "capability" and value in ("", "null"):
        return None
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return literal(value[1:-1] if quoted else value)


def explain(settings: ExplainSettings) -> int:
    """Print the explanation; a word on standard error where it does not reproduce the published score."""
    from toolshift.reporting.explanation import to_json, to_text

    found = explanation(settings)
    print(to_json(found) if settings.format == "json" else to_text(found))
    for candidate in found.candidates:
        if not candidate.agrees:
            print(
                f"warning: {candidate.capability_id}: published {candidate.published:.6f}, recomputed "
                f"{candidate.pair.scores.score:.6f}; the run was made by other code or with another cache",
                file=sys.stderr,
            )
    return 0


def explanation(settings: ExplainSettings) -> Explanation:
    """Everything that is printed, after every check.

    Raises:
        UserError: for a run, task or capability that does not exist, a run of another model, or changed data.
        SealedTarget: if the selection record and the checkpoint of the task's target do not agree.
    """
    run = FinishedRun.find(settings.run, outputs=Path(settings.paths.outputs))
    seed = run.seed(settings.seed)
    task_id, target = run.tested(settings.task)
    run.open(target, seed=seed)
    workspace = run.workspace(settings)
    return _Case(run=run, workspace=workspace, task_id=task_id, target=target, seed=seed).explanation(
        settings.capability
    )


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """The folder of a finished run of TACT. identity: the content of ``identity.json``."""

    folder: Path
    identity: Mapping[str, Any]

    @staticmethod
    def find(run: str, *, outputs: Path, any_model: bool = False) -> FinishedRun:
        """The run behind a folder or the beginning of a hash; of TACT, unless any model will do.

        Raises:
            UserError: if there is none, if several fit, if it is not finished, or of another model.
        """
        from toolshift.runs.files import read_json
        from toolshift.runs.ledger import RunFolder, ledger

        given = Path(run)
        if (given / "identity.json").is_file():
            folder = given.resolve()
        else:
            names = {f.path.name: f.path for _, f, _ in ledger(outputs)}
            fitting = [name for name in names if name.startswith(run)]
            if len(fitting) != 1:
                raise UserError(_which("run", run, fitting, names, where=f"below {outputs / 'runs'}"))
            folder = names[fitting[0]]
        state = RunFolder(folder).state
        if state != "done":
            raise UserError(f"run {folder.name} is {state}, not done; run its command again, then explain it")
        identity = read_json(folder / "identity.json")
        if not any_model:
            _refuse_other_models(identity, name=folder.name)
        return FinishedRun(folder=folder, identity=identity)

    @cached_property
    def record(self) -> Mapping[str, Any]:
        """The content of ``run.json``."""
        from toolshift.runs.files import read_json

        return read_json(self.folder / "run.json")

    @cached_property
    def roles(self) -> pd.DataFrame:
        """The fold table as text: target, task_id, context (empty for none), role."""
        import pyarrow.parquet as pq

        return pq.read_table(self.folder / "folds.parquet").to_pandas().astype(object).fillna("").astype(str)

    def having(self, target: str, *, role: str) -> list[tuple[str, str]]:
        """(task id, context) of the tasks with a role for a target, in the order of the corpus."""
        mine = self.roles.loc[(self.roles["target"] == target) & (self.roles["role"] == role), :]
        return list(zip(mine["task_id"], mine["context"], strict=True))

    def seed(self, asked: int | None) -> int:
        """The seed that is explained: the first one by default.

        Raises:
            UserError: if the run does not have it.
        """
        seeds = list(self.record["seeds"])
        if asked is not None and asked not in seeds:
            raise UserError(f"seed={asked}: the run has the seeds {', '.join(map(str, seeds))}")
        return seeds[0] if asked is None else asked

    def tested(self, task: str) -> tuple[str, str]:
        """(id, target) of a task that was held out.

        Raises:
            UserError: if no target was tested on such a task, or several tasks fit.
        """
        tested = self.roles.loc[self.roles["role"] == "test", :]
        target_of = dict(sorted(zip(tested["task_id"], tested["target"], strict=True), reverse=True))
        fitting = [task] if task in target_of else _ending_with(task, target_of)
        if len(fitting) != 1:
            raise UserError(_which("task", task, fitting, target_of, where="among the tested tasks of the run"))
        return fitting[0], target_of[fitting[0]]

    def open(self, target: str, *, seed: int) -> None:
        """Check the seal: the fit was made from these lists, has not seen the target and is the one selected.

        Raises:
            SealedTarget: otherwise.
        """
        from toolshift.evaluation.seal import open_target
        from toolshift.runs.files import sha256_file, stable_hash

        lists = {p.stem: sha256_file(p) for p in sorted((self.folder / "manifests").glob("*.parquet"))}
        folds = sha256_file(self.folder / "folds.parquet")
        data = stable_hash([self.identity["fingerprints"], lists, folds, self.record["device"]])
        held_out = sorted({context for _, context in self.having(target, role="test") if context})
        open_target(self.folder, target, seed=seed, data=data, held_out=held_out)

    def settings(self, given: ExplainSettings) -> Settings:
        """The settings that the run was made with, in the places of this command.

        Raises:
            UserError: if the run was made by a version with other settings.
        """
        plain = as_mapping(load_settings("train"))
        for group, content in self.identity.items():
            if group in plain:
                plain[group] = {**plain[group], **content} if isinstance(content, Mapping) else content
        model = self.identity["model"]
        plain["models"] = {model["name"]: {**model, "grid": dict(model["grid"])}}
        plain["reference"], plain["compare"] = model["name"], {}
        plain["encoder"] = _encoder(self.identity["encoder"], path=given.encoder.path)
        plain["data"] |= {"cache": given.data.cache, "root": given.data.root}
        plain["paths"]["outputs"] = given.paths.outputs
        try:
            settings = from_mapping(Settings, plain)
        except ConfigError as error:
            raise UserError(
                f"run {self.folder.name} was made by another version ({error.problems[0]}); run it again"
            ) from error
        if settings.data.source == "real" and settings.data.root is None:
            raise UserError("the run is of real data: data.root=PATH, the folder that holds <dataset>/")
        return settings

    def workspace(self, given: ExplainSettings) -> Workspace:
        """Records and encoder of the run.

        Raises:
            UserError: if they are not those that the run was made from.
        """
        from toolshift.experiment.data import open_records
        from toolshift.experiment.workspace import Workspace, build_encoder, limit_tasks

        settings = self.settings(given)
        encoder, loaded = build_encoder(settings), open_records(settings)
        found = {"encoder": encoder.fingerprint, "records": loaded.fingerprint}
        for name, fingerprint in sorted(self.identity["fingerprints"].items()):
            if found.get(name) != fingerprint:
                raise UserError(f"the {name} are not those that run {self.folder.name} was made from; run it again")
        records = limit_tasks(loaded.records, settings.debug.max_tasks)
        return Workspace(settings=settings, records=records, fingerprint=loaded.fingerprint, encoder=encoder)

    def restored(self, target: str, *, seed: int) -> tuple[TactPath, Mapping[str, Any]]:
        """(path, chosen settings) of the fit of a target.

        Raises:
            UserError: if the checkpoint cannot be read as one of this version.
        """
        from toolshift.experiment.workspace import resolve
        from toolshift.runs.files import read_json
        from toolshift.selection.records import checkpoint_path, read_checkpoint, record_path

        choice = read_json(record_path(self.folder, target, seed))["selection"].get("choice", {})
        model, path = self.identity["model"], checkpoint_path(self.folder, target, seed)
        try:
            header, arrays = read_checkpoint(path)
            fitted = resolve(model["target"])(**{**model["params"], **choice})
            return fitted.restored(arrays, contexts_seen=header["contexts_seen"]), choice
        except (ValueError, TypeError) as error:
            raise UserError(f"{path}: {error}") from error

    def scores(self, target: str, task_id: str, *, seed: int) -> pd.DataFrame:
        """Published rows of a task: view, capability_id, score and role, in the order of the file.

        Raises:
            UserError: if the scores were taken away, or the task is in no list.
        """
        import pyarrow.parquet as pq

        from toolshift.runs.files import folder_name

        path = self.folder / "scores" / folder_name(target) / f"seed={seed}.parquet"
        if not path.is_file():
            raise UserError(f"{path} is missing; run the command of the run again")
        rows = pq.read_table(path).to_pandas().astype({"task_id": str, "capability_id": str})
        rows = rows.loc[rows["task_id"] == task_id, :]
        if rows.empty:
            raise UserError(f"task {task_id} (target {target}) has a list in no view of the run, so it has no score")
        return rows.assign(role=_roles(self.folder, rows, task_id=task_id))


def _refuse_other_models(identity: Mapping[str, Any], *, name: str) -> None:
    from toolshift.experiment.workspace import resolve
    from toolshift.models.tact.tact import Tact

    model = identity["model"]
    found = resolve(model["target"])
    if not (isinstance(found, type) and issubclass(found, Tact)):
        raise UserError(f"run {name} is of the model {model['name']}; explain.py takes apart {SUPPORTED}")


def _roles(folder: Path, rows: pd.DataFrame, *, task_id: str) -> list[str]:
    """Role of every row in the frozen list of its view."""
    import pyarrow.parquet as pq

    role_of: dict[tuple[str, str], str] = {}
    for view in sorted(set(rows["view"])):
        table = pq.read_table(folder / "manifests" / f"{view}.parquet").to_pandas()
        mine = table[table["task_id"].astype(str) == task_id]
        role_of |= {(view, str(c)): str(r) for c, r in zip(mine["capability_id"], mine["role"], strict=True)}
    return [role_of.get((v, c), "") for v, c in zip(rows["view"], rows["capability_id"], strict=True)]


def _encoder(identity: Mapping[str, Any], *, path: str | None) -> Mapping[str, Any]:
    """Encoder settings of an identity, with the keys that are no part of it: on the CPU, weights where they are now."""
    from toolshift.experiment.plan import NOT_IDENTITY_OF_ENCODER

    body = (option_body(conf_folder(), "encoder", identity["name"]) or {}).get("params", {})
    places = {name: body[name] for name in NOT_IDENTITY_OF_ENCODER if name in body}
    if "device" in places:
        places["device"] = "cpu"
    if "path" in places and path is not None:
        places["path"] = path
    if places.get("path") == "???":
        raise UserError(f"encoder {identity['name']}: encoder.path=PATH, the folder of its weights")
    return {**identity, "params": {**identity["params"], **places}}


def _ending_with(word: str, names: Mapping[str, Any]) -> list[str]:
    """Names that begin or end with a word, sorted."""
    return sorted(name for name in names if name.startswith(word) or name.endswith(word))


def _which(what: str, word: str, fitting: Sequence[str], known: Mapping[str, Any], *, where: str) -> str:
    """Why a word names nothing: several fit, or none, and then the nearest."""
    if fitting:
        more = f" and {len(fitting) - _LISTED} more" if len(fitting) > _LISTED else ""
        return f"{what}={word}: {len(fitting)} fit {where}: {', '.join(fitting[:_LISTED])}{more}; give more of one"
    return f"{what}={word}: there is none {where}{suggestion(word, known)}"


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One tested task of an opened run."""

    run: FinishedRun
    workspace: Workspace
    task_id: str
    target: str
    seed: int

    def explanation(self, capability: str | None) -> Explanation:
        """The candidates that are asked for, highest score first."""
        from toolshift.evaluation.explanation import Explanation, requirements_of

        path, choice = self.run.restored(self.target, seed=self.seed)
        scores = self.run.scores(self.target, self.task_id, seed=self.seed)
        asked = self._asked(capability, scores)
        needed, words = requirements_of(self._row, bank=self.workspace.bank)
        candidates = self._candidates(asked, path, scores=scores, needed=needed)
        task = self.workspace.records.tasks[self._row]
        return Explanation(
            run=self.run.folder.name,
            experiment=self.run.identity["name"],
            model=self.run.identity["model"]["name"],
            target=self.target,
            seed=self.seed,
            choice=dict(choice),
            stages=tuple(stage.name for stage in path.stages),
            task_id=self.task_id,
            task_domain=task.domain,
            task_text=task.text,
            gold=task.gold_capability_ids,
            requirements=words,
            views=tuple(dict.fromkeys(scores["view"])),
            named=capability is not None,
            candidates=candidates,
        )

    @property
    def _row(self) -> int:
        return self.workspace.corpus.task_ids.index(self.task_id)

    def _asked(self, word: str | None, scores: pd.DataFrame) -> list[str]:
        """Ids of the candidates that a word names; a capability outside the lists by its whole id."""
        listed = sorted(set(scores["capability_id"]))
        if word is None:
            return listed
        if word in self.workspace.records.library.position:
            return [word]
        name_of = {c: self._capability(c).name for c in listed}
        lowered = word.lower()
        same = [c for c in listed if name_of[c].lower() == lowered]
        fitting = same or [c for c in listed if lowered in c.lower() or lowered in name_of[c].lower()]
        if len(fitting) != 1:
            raise UserError(_which("capability", word, fitting, name_of, where=f"in the lists of {self.task_id}"))
        return fitting

    def _capability(self, capability_id: str) -> Capability:
        library = self.workspace.records.library
        return library.capabilities[library.position[capability_id]]

    def _candidates(
        self, asked: Sequence[str], path: TactPath, *, scores: pd.DataFrame, needed: TaskRequirements
    ) -> tuple[Candidate, ...]:
        import numpy as np

        from toolshift.evaluation.explanation import explain_pairs

        corpus, bank = self.workspace.corpus, self.workspace.bank
        rows = np.array(sorted(corpus.capability_ids.index(c) for c in asked), np.int64)
        pairs = explain_pairs(path, self._row, rows, needed=needed, sources=self._sources(), bank=bank)
        found = [self._candidate(pair, scores) for pair in pairs]
        return tuple(sorted(found, key=lambda c: (-c.pair.scores.score, c.capability_id)))

    def _candidate(self, pair: ExplainedPair, scores: pd.DataFrame) -> Candidate:
        from toolshift.evaluation.explanation import Candidate

        records, capability_id = self.workspace.records, self.workspace.corpus.capability_ids[pair.capability]
        task, capability = records.tasks[self._row], self._capability(capability_id)
        own = {endpoint.endpoint_id for endpoint in records.library.endpoints_of[capability_id]}
        mine = scores.loc[scores["capability_id"] == capability_id, "score"]
        return Candidate(
            capability_id=capability_id,
            name=capability.name,
            domain=capability.domain,
            text=capability.text,
            is_gold=capability_id in task.gold_capability_ids,
            gold_endpoints=tuple(e for e in task.gold_endpoint_ids if e in own),
            lists=_places(scores, capability_id),
            published=None if mine.empty else float(mine.iloc[0]),
            pair=pair,
        )

    def _sources(self) -> SourceTasks:
        """The source tasks of the target, as the fold table names them."""
        import numpy as np
        from scipy import sparse

        from toolshift.evaluation.explanation import SourceTasks

        row_of = {task_id: row for row, task_id in enumerate(self.workspace.corpus.task_ids)}
        train = self.run.having(self.target, role="train")
        rows = np.array([row_of[task_id] for task_id, _ in train], np.int64)
        gold = sparse.csc_matrix(self.workspace.labels.gold[rows])
        columns = np.flatnonzero(np.diff(gold.indptr))
        places = {int(c): np.sort(gold.indices[gold.indptr[c] : gold.indptr[c + 1]]).astype(np.int64) for c in columns}
        return SourceTasks(rows=rows, context=tuple(context for _, context in train), gold=places)


def _places(scores: pd.DataFrame, capability_id: str) -> tuple[ListPlace, ...]:
    """Rank of a candidate in each of the task's lists."""
    from toolshift.evaluation.explanation import ListPlace

    found = []
    for view, rows in scores.groupby("view", sort=False):
        mine = rows.loc[rows["capability_id"] == capability_id, :]
        if mine.empty:
            continue
        score, others = float(mine["score"].iloc[0]), rows["score"].to_numpy()
        found.append(
            ListPlace(
                view=str(view),
                rank=int((others > score).sum()) + 1,
                of=len(rows),
                tied=int((others == score).sum()) - 1,
                role=str(mine["role"].iloc[0]),
            )
        )
    return tuple(found)
