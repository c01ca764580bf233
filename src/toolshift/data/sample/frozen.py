"""Frozen hashes of the sample's worlds with seed 0. They were set before any method was tried on these worlds.

No method's result may be the reason to change the world, and a change voids every result made with the former one;
``docs/sample.md`` says what else it needs. This file is not part of the code that a sample is made by, so that a
new hash can be entered without generating anything anew.
"""

from __future__ import annotations

from collections.abc import Mapping

# (world, size) -> hash of the world and its tasks, independent of any file format
WORLD_HASH: Mapping[tuple[str, str], str] = {
    ("default", "tiny"): "516eb8a23b83299978828d055292943ac76d728972599265dc0e1690869367b6",
    ("default", "small"): "23b6d21f513556a9606fb3ee9006ca2d05cbe49435d76ab9c6516f8c5bc38641",
    ("no_function_gap", "tiny"): "7ca3c9c1c0e28a76c1c38d71b6f4ea0cd0c587cc4ec2afce00a814e191126770",
    ("no_function_gap", "small"): "f3c264fd52bb60c3b60c0c2fc4b47f948ca364e45decfe42ba6d875bc9ea552f",
    ("no_context_gap", "tiny"): "cda86df5e0004cff5cdbe0f97874b4ffe80e45c0736b533f0d244621e03e9cff",
    ("no_context_gap", "small"): "45870f845c8fa2bbc2088c049d6a55aa3847854d7b59e034494c61c3b00a96ad",
    ("context_is_noise", "tiny"): "7d3b17c1bb94c0fb5a685c68d241e1ffe02730222cbf248f9b88e93ca402ac1c",
    ("context_is_noise", "small"): "ee369dad910fbf7c72be0713f7fb29bce5664c8cf8c1fbcecd10051170d6cd18",
    ("popularity_only", "tiny"): "2899ed34bdada156c8eeb1c97f2bb2b6ddf5e5902f067b05fe240cae3865594c",
    ("popularity_only", "small"): "ffb06dc03d8593e5450ee048c2f31f72077232ed6975f254794330136bb901d7",
}

# (world, size) -> hash of the files in ToolBench's layout
TOOLBENCH_HASH: Mapping[tuple[str, str], str] = {
    ("default", "tiny"): "a32fa01a6dda1ff20d71215c10025f06057a0575148060ddb13d6748698d5396",
    ("default", "small"): "aa401b88e5e76d1584e2c1f442794045fa88975f58a371a21505a1a71cd9c2a9",
    ("no_function_gap", "tiny"): "6382edde7500d07f672327db24a30b9b92aafdb1bee0dcc9fa3e1c4853d7d507",
    ("no_function_gap", "small"): "f992f0a1cbcea04c9e16ebe8b9a9355e2532b1ab21e125dae5bfc6d7cbbd6a33",
    ("no_context_gap", "tiny"): "618d1232f5e93b9100b49633f20927af40da2549f81e1f9ed4961383dc064d72",
    ("no_context_gap", "small"): "cb5d8f7404498ffe1b0d8ad3630c5c40dc06dbfc22ec5cf2f9e7039a047cb311",
    ("context_is_noise", "tiny"): "882e1348eea79bf0a1687ebbb8f3ec80aa576709af2f3be2b635a7c4d3097203",
    ("context_is_noise", "small"): "25995b7e43c74742635dc6e0119d208d47ee09478d669cc0c5752707f4c61383",
    ("popularity_only", "tiny"): "dc65488ad62585fc1a8f30f2560ccabf314ad1148ee5f9084f2c1d4377ece447",
    ("popularity_only", "small"): "1276762051cf1dc6a9a3421c355129cf0bc19c4fd7c230da3edddc699589cadc",
}

# dataset -> hash of the world default, size tiny, that its sample shows (another seed, and the format's shape)
FORMAT_WORLD_HASH: Mapping[str, str] = {
    "apibank": "39c0b98d7a62707029e3b62a70d214189bfb8fad8a7f3242224b28940e505afa",
    "apibench": "2656e130bae6d2cfa63f9dc644ffc8a49b0cf9e4cc902c56a3be77e41078eb3a",
    "bfcl": "b06b5e14ad506eaccef528d221339b1a52237bee970d30fc5d97ed9109c8b5e7",
    "jsonl": "c2da3652b7fa73a03b5e8d6132c48d91917fe4a77afb7cd4496d29a203cce1b7",
    "metatool": "49ba320dcfc4f583ab4778dcec3681e15bb3f02478466d5de7ace639d7b51336",
    "taskbench": "6de7e898b41f47a2d54d5448e673ca6d2858b496b8ded5f39fa112e43a1ec569",
    "toolbench": "516eb8a23b83299978828d055292943ac76d728972599265dc0e1690869367b6",
    "tooleyes": "8bad3b74a78590e9dfcfca1311458de2973fd91362e4762737b738ca9ef06e20",
    "trajectbench": "bdd9cb14b52c0c3c96411a53edbaa197708f59c9029737fb058c52ccd042d0c8",
}
