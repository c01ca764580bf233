"""What the sample's documentation and requests are made of: word lists, argument kinds, functions and conditions.

All names, descriptions and phrases are invented. Documentation and requests have words of their own for the same
thing: a concept has a noun in each, a function has documentation verbs and request phrases, an argument has several
names. The verbs of different functions mean different classes of action, and no two functions ask for the same
argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# ------------------------------------------------------------------------------------------------ domains and concepts

# domain -> (noun of the documentation, noun of a request)
DOMAINS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Astronomy": (
        ("star charts", "maps of the night sky"),
        ("eclipses", "hidden sun and moon events"),
        ("satellite passes", "spacecraft flyovers"),
        ("meteor showers", "shooting star nights"),
        ("telescope slots", "observatory sessions"),
        ("planet positions", "where planets stand"),
        ("comet diaries", "notes on comets"),
    ),
    "Bicycles": (
        ("bike routes", "rides through nature"),
        ("repair shops", "people who fix flat tyres"),
        ("frame sizes", "bike measurements"),
        ("rental stations", "places that lend bikes"),
        ("cycling tours", "guided bike trips"),
        ("spare parts", "chains and brakes"),
        ("bike licences", "plates for bikes"),
    ),
    "Cooking": (
        ("recipes", "dishes for dinner"),
        ("ingredient substitutes", "replacements for ingredients"),
        ("menu plans", "meals of the week"),
        ("kitchen timers", "stove alarms"),
        ("cooking classes", "lessons with a chef"),
        ("wine pairings", "drinks that suit a dish"),
        ("spice blends", "mixed seasonings"),
    ),
    "Gardening": (
        ("seed catalogues", "seeds on sale"),
        ("frost dates", "last cold nights"),
        ("plant diseases", "brown leaf problems"),
        ("watering schedules", "rounds with the hose"),
        ("garden beds", "plots of soil"),
        ("pruning guides", "advice on cutting trees"),
        ("compost tests", "soil samples"),
    ),
    "Home_and_Energy": (
        ("electricity tariffs", "prices of a kilowatt hour"),
        ("solar yields", "power from the roof"),
        ("heating systems", "ways to warm a house"),
        ("smart meters", "devices that show consumption"),
        ("insulation offers", "quotes for warmer walls"),
        ("boiler inspections", "visits by the chimney sweep"),
        ("battery stores", "home accumulators"),
    ),
    "Languages": (
        ("dictionary entries", "word meanings"),
        ("verb tables", "conjugated forms"),
        ("pronunciations", "spoken words"),
        ("idioms", "sayings of natives"),
        ("vocabulary cards", "words to learn by heart"),
        ("tandem partners", "conversation partners"),
        ("grammar quizzes", "language puzzles"),
    ),
    "Libraries": (
        ("book holdings", "novels on the shelf"),
        ("reading lists", "titles worth reading"),
        ("due dates", "days to bring books back"),
        ("author pages", "lives of writers"),
        ("study rooms", "quiet desks"),
        ("interlibrary loans", "books from other towns"),
        ("newspaper volumes", "bound old papers"),
    ),
    "Museums": (
        ("exhibitions", "shows of paintings"),
        ("guided visits", "tours with an expert"),
        ("artefact records", "old objects"),
        ("ticket desks", "entrances and fees"),
        ("audio guides", "spoken commentaries"),
        ("donor lists", "people who gave money"),
        ("storage depots", "cellars full of art"),
    ),
    "Music_Practice": (
        ("sheet music", "notes of a piece"),
        ("chord charts", "grips for a song"),
        ("metronome settings", "playing speeds"),
        ("choir rehearsals", "evenings when singers meet"),
        ("instrument rentals", "violins on loan"),
        ("music teachers", "tutors for instruments"),
        ("concert reviews", "opinions on recitals"),
    ),
    "Public_Transit": (
        ("departures", "next trams"),
        ("fares", "prices of a ride"),
        ("line disruptions", "delays and closures"),
        ("station layouts", "ways to the platform"),
        ("season passes", "monthly cards"),
        ("lost property", "things left on a bus"),
        ("bus depots", "garages of the fleet"),
    ),
    "Sea_and_Coast": (
        ("tide tables", "low water times"),
        ("harbour berths", "moorings for a boat"),
        ("wave reports", "rough sea news"),
        ("lighthouses", "beacons along the shore"),
        ("fishing permits", "papers for anglers"),
        ("ferry crossings", "trips to the islands"),
        ("beach cleanings", "litter rounds"),
    ),
    "Small_Business": (
        ("invoices", "bills to customers"),
        ("tax deadlines", "days the tax office waits for"),
        ("supplier records", "sellers of material"),
        ("shift plans", "rosters of the staff"),
        ("price quotes", "cost proposals"),
        ("stock counts", "goods in the store"),
        ("loan terms", "credit conditions"),
    ),
    "Sports_Clubs": (
        ("training plans", "workouts of the week"),
        ("match results", "final scores"),
        ("club members", "people on the team"),
        ("pitch times", "hours on the field"),
        ("referee rosters", "whistle duties"),
        ("youth camps", "holidays for young players"),
        ("trophy rooms", "cups won in the past"),
    ),
    "Wildlife": (("bird sightings", "birds that were seen"),),
}
TINY_DOMAIN = "Wildlife"

# (suffix of the domain, word before its nouns): more domains for large worlds
SECTORS = (("", ""), ("_Trade", "wholesale"), ("_Research", "scientific"), ("_Archives", "archived"))
# words before a noun: more concepts per domain for large worlds
FACETS = ("", "regional", "seasonal", "premium")


# --------------------------------------------------------------------------------------------------- argument kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What an argument holds. ``mention`` is how a request gives the value, ``refer`` how it points to an earlier
    step's result of type ``takes`` instead (empty: it never does)."""

    names: tuple[str, ...]
    raw_type: str
    description: str
    mention: str = ""
    takes: str = ""
    refer: str = ""


KINDS: Mapping[str, Kind] = {
    "keyword": Kind(
        names=("query", "keyword", "search_term"),
        raw_type="STRING",
        description="words to look for",
        mention='about "{word}"',
    ),
    "reference": Kind(
        names=("id", "record_id", "reference"),
        raw_type="STRING",
        description="identifier of one record",
        mention="number {number}",
        takes="record",
        refer="of that entry",
    ),
    "position": Kind(
        names=("position", "location", "coordinates"),
        raw_type="GEOPOINT (latitude, longitude)",
        description="centre of the area",
        mention="near {place}",
    ),
    "radius": Kind(
        names=("radius", "distance", "max_km"),
        raw_type="NUMBER",
        description="kilometres around it",
        mention="within {small} km",
    ),
    "date": Kind(
        names=("date", "day", "on_date"),
        raw_type="DATE (YYYY-MM-DD)",
        description="day of interest",
        mention="on {day} {month}",
    ),
    "title": Kind(
        names=("title", "label", "heading"),
        raw_type="STRING",
        description="what it is called",
        mention='called "{word}"',
    ),
    "quantity": Kind(
        names=("quantity", "count", "units"),
        raw_type="NUMBER",
        description="how many",
        mention="with {small} units",
    ),
    "language": Kind(
        names=("language", "target_language", "lang"),
        raw_type="STRING",
        description="language of the result",
        mention="into {language}",
    ),
    "persons": Kind(
        names=("persons", "group_size", "people"),
        raw_type="NUMBER",
        description="size of the group",
        mention="for {small} people",
    ),
    "budget": Kind(
        names=("budget", "max_price", "price_limit"),
        raw_type="NUMBER",
        description="most money to spend",
        mention="under {number} euros",
    ),
    "email": Kind(
        names=("email", "recipient_email", "mail"),
        raw_type="STRING",
        description="address that gets the message",
        mention="to {word}@{host}.example",
    ),
    "entry_code": Kind(
        names=("code", "entry_code", "key"),
        raw_type="STRING",
        description="code of the entry",
        mention="with code {code}",
        takes="record",
        refer="for that entry",
    ),
    "status": Kind(
        names=("status", "state", "stage"), raw_type="ENUM", description="new state of it", mention="to {status}"
    ),
    "ticket": Kind(
        names=("ticket", "ticket_number", "case"),
        raw_type="NUMBER",
        description="case it belongs to",
        mention="under ticket {number}",
        takes="record",
        refer="behind that entry",
    ),
    "format": Kind(
        names=("format", "file_type", "output_format"),
        raw_type="ENUM",
        description="kind of file",
        mention="as {format}",
    ),
    "threshold": Kind(
        names=("threshold", "min_value", "alert_level"),
        raw_type="NUMBER",
        description="level that raises an alert",
        mention="above {number}",
    ),
    "seats": Kind(
        names=("seats", "places", "spots"), raw_type="NUMBER", description="places wanted", mention="with {small} seats"
    ),
    "holder": Kind(
        names=("holder", "customer", "guest"), raw_type="STRING", description="who it is for", mention="for {name}"
    ),
    "image": Kind(
        names=("image_url", "picture_url", "photo_link"),
        raw_type="STRING",
        description="where the picture lies",
        mention="in https://pics.example/{word}",
        takes="file",
        refer="in that file",
    ),
    # Never required and never mentioned:
    "limit": Kind(names=("limit", "max_results", "top"), raw_type="NUMBER", description="most results"),
    "page": Kind(names=("page", "page_number", "offset"), raw_type="NUMBER", description=""),
    "detailed": Kind(names=("detailed", "verbose", "full"), raw_type="BOOLEAN", description="longer answers"),
    "fields": Kind(names=("fields", "columns", "parts"), raw_type="ARRAY", description="columns wanted"),
    "sort": Kind(names=("sort", "order_by", "sorting"), raw_type="ENUM", description="order of the rows"),
    "callback": Kind(names=("callback_url", "webhook_url", "hook_url"), raw_type="STRING", description=""),
}
OPTIONAL_KINDS = ("limit", "page", "detailed", "fields", "sort", "callback")


# -------------------------------------------------------------------------------------------------------- functions


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One class of action: documentation ``verbs`` and sentences, required argument kinds, how a request asks for it
    (``{args}`` stands for the mentions), and the type of its result that a later step may take (empty: none)."""

    verbs: tuple[str, ...]
    says: tuple[str, ...]
    required: tuple[str, ...]
    asks: tuple[str, ...]
    gives: str = ""


FUNCTIONS: Mapping[str, Function] = {
    "search": Function(
        verbs=("Search", "Find", "Lookup"),
        says=("Searches {noun} by a word.", "Finds {noun} that match words."),
        required=("keyword",),
        asks=("look for {noun} {args}", "I want {noun} {args}", "hunt down {noun} {args}"),
        gives="record",
    ),
    "read": Function(
        verbs=("Get", "Fetch", "Show"),
        says=("Returns one of the {noun} in full.", "Shows all that is known about one of the {noun}."),
        required=("reference",),
        asks=("tell me about {noun} {args}", "describe {noun} {args}", "open {noun} {args}"),
    ),
    "list": Function(
        verbs=("List", "Browse", "Enumerate"),
        says=("Lists {noun} in an area.", "Enumerates {noun} around a point."),
        required=("position", "radius"),
        asks=("name the {noun} {args}", "see which {noun} exist {args}", "survey {noun} {args}"),
        gives="record",
    ),
    "check": Function(
        verbs=("Check", "Verify", "Validate"),
        says=("Checks whether {noun} are available on a day.", "Verifies {noun} for a date."),
        required=("date",),
        asks=("make sure there are {noun} {args}", "see if {noun} are fine {args}", "confirm {noun} {args}"),
    ),
    "create": Function(
        verbs=("Create", "Add", "Register"),
        says=("Creates new {noun}.", "Adds {noun} to the collection."),
        required=("title", "quantity"),
        asks=("set up {noun} {args}", "start {noun} {args}", "put down {noun} {args}"),
        gives="record",
    ),
    "convert": Function(
        verbs=("Convert", "Translate", "Transform"),
        says=("Translates {noun} to another language.", "Converts {noun} for foreign readers."),
        required=("language",),
        asks=("put {noun} {args}", "turn {noun} {args}", "render {noun} {args}"),
        gives="file",
    ),
    "compute": Function(
        verbs=("Calculate", "Estimate", "Compute"),
        says=("Calculates what {noun} cost.", "Estimates {noun} for a group."),
        required=("persons", "budget"),
        asks=("work out {noun} {args}", "reckon {noun} {args}", "sum up {noun} {args}"),
    ),
    "send": Function(
        verbs=("Send", "Share", "Submit"),
        says=("Sends {noun} by mail.", "Shares {noun} with somebody."),
        required=("email",),
        asks=("mail {noun} {args}", "forward {noun} {args}", "pass {noun} on {args}"),
    ),
    "update": Function(
        verbs=("Update", "Edit", "Change"),
        says=("Updates the state of {noun}.", "Changes an entry of the {noun}."),
        required=("entry_code", "status"),
        asks=("move {noun} {args}", "switch {noun} {args}", "adjust {noun} {args}"),
    ),
    "delete": Function(
        verbs=("Delete", "Remove", "Clear"),
        says=("Removes {noun} for good.", "Deletes {noun} of a case."),
        required=("ticket",),
        asks=("throw away {noun} {args}", "do away with {noun} {args}", "drop {noun} {args}"),
    ),
    "export": Function(
        verbs=("Export", "Download", "Extract"),
        says=("Exports {noun} to a file.", "Downloads {noun} in a file format."),
        required=("format",),
        asks=("save {noun} {args}", "hand me {noun} {args}", "store {noun} {args}"),
        gives="file",
    ),
    "track": Function(
        verbs=("Track", "Monitor", "Follow"),
        says=("Monitors {noun} and raises alerts.", "Tracks {noun} over time."),
        required=("threshold",),
        asks=("watch {noun} {args}", "keep an eye on {noun} {args}", "warn me of {noun} {args}"),
    ),
    "book": Function(
        verbs=("Book", "Reserve", "Order"),
        says=("Reserves {noun} for a customer.", "Orders {noun}."),
        required=("seats", "holder"),
        asks=("secure {noun} {args}", "arrange {noun} {args}", "claim {noun} {args}"),
    ),
    "detect": Function(
        verbs=("Detect", "Identify", "Recognize"),
        says=("Recognizes {noun} in a picture.", "Identifies {noun} on photos."),
        required=("image",),
        asks=("spot {noun} {args}", "name the {noun} you see {args}", "point out {noun} {args}"),
    ),
}


# ------------------------------------------------------------------------------------------------------- conditions

# axis -> value -> how a request says it
CONDITIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "platform": {
        "desktop": ("on a Windows desktop", "on an office computer", "from a desktop machine"),
        "phone": ("on an Android phone", "on a small phone screen", "from my mobile"),
        "speaker": ("through a smart speaker", "by voice only", "with a voice assistant"),
        "watch": ("on a smart watch", "from my wrist", "on a watch display"),
    },
    "locale": {
        "brazil": ("in Brazil", "for Brazilian users", "in Recife"),
        "japan": ("in Japan", "for Japanese users", "in Osaka"),
        "kenya": ("in Kenya", "under Kenyan rules", "in Nairobi"),
        "nordic": ("in Sweden", "for Norwegian users", "in Denmark"),
    },
    "access": {
        "company": ("with our company login", "under a corporate contract", "through single sign-on"),
        "open": ("without an account", "with no sign-up", "as an anonymous guest"),
        "school": ("on a school licence", "with a student pass", "under our university plan"),
        "state": ("with a government key", "as a public authority", "under a state permit"),
    },
    "environment": {
        "factory": ("in a noisy factory", "on the shop floor", "beside loud machines"),
        "night": ("during the night shift", "after midnight", "in complete darkness"),
        "offline": ("without internet", "with no signal", "fully offline"),
        "vehicle": ("in a moving van", "while driving", "on board a train"),
    },
}
AXES = tuple(CONDITIONS)
# axis -> its two camps: the tasks of a domain live in one of them, and most markets are divided between them
CAMPS: Mapping[str, tuple[tuple[str, str], tuple[str, str]]] = {
    "platform": (("phone", "watch"), ("desktop", "speaker")),
    "locale": (("japan", "nordic"), ("brazil", "kenya")),
    "access": (("company", "state"), ("open", "school")),
    "environment": (("offline", "vehicle"), ("factory", "night")),
}

# ---------------------------------------------------------------------------------------------------- small pieces

DESCRIPTIONS = (
    "{brand} covers {nouns} for {audience}.",
    "{nouns} by {brand}, made for {audience}.",
    "A service of {brand} on {nouns}, for {audience}.",
)
AUDIENCES = (
    "families",
    "beginners",
    "professionals",
    "collectors",
    "planners",
    "newcomers",
    "small teams",
    "enthusiasts",
    "associations",
    "editors",
)
SUFFIXES = ("", "Hub", "Desk", "Link")
SYLLABLES = ("ar", "bel", "cav", "dor", "el", "fen", "gal", "hes", "iv", "jun", "kel", "lum", "mir", "nos", "om", "per")
ENDINGS = ("bo", "un", "io", "im", "vani", "do", "ip", "tra", "ono", "da", "pa", "ero", "av", "til", "bra", "vo")

JOINERS = ("Then", "Also,", "Next,", "And")
CLOSINGS = ("All {conditions}.", "This is {conditions}.", "We work {conditions}.")
NAME_MENTIONS = ("I heard of {name}.", "Maybe use {name}.")

VALUES: Mapping[str, tuple[str, ...]] = {
    "word": ("amber", "harvest", "lantern", "meadow", "copper", "willow", "harbour", "thistle", "velvet", "ember"),
    "place": ("Ostermoor", "Kalvik", "Brenau", "Lindholm", "Sarvena", "Tolmin", "Weyra", "Juras"),
    "host": ("ostermoor", "kalvik", "brenau", "lindholm", "sarvena", "tolmin", "weyra", "juras"),
    "name": ("Ada Brandt", "Ben Okoro", "Clara Lind", "Dario Pires", "Emi Sato", "Finn Moe", "Greta Falk", "Hugo Reis"),
    "language": ("Finnish", "Greek", "Turkish", "Polish", "Welsh", "Hindi", "Czech", "Dutch"),
    "format": ("PDF", "CSV", "XML", "a spreadsheet"),
    "month": ("January", "February", "March", "April", "June", "August", "October", "December"),
    "status": ("open", "closed", "paused", "done"),
}
