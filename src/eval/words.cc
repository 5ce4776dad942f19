// SPDX-License-Identifier: Apache-2.0
#include "eval/words.h"

namespace weir {
namespace {

// Not sorted: the order is part of what a seed means. Add new words at the end.
constexpr std::string_view kNouns[] = {
    "apple",    "basket",  "candle",   "dragon",  "engine",   "falcon",  "garden",  "hammer",   "island",  "jacket",
    "kettle",   "ladder",  "mirror",   "needle",  "orange",   "pencil",  "quarry",  "rocket",   "saddle",  "tunnel",
    "umbrella", "valley",  "window",   "yacht",   "anchor",   "bridge",  "castle",  "desert",   "eagle",   "forest",
    "violin",   "copper",  "lemon",    "tiger",   "planet",   "river",   "shadow",  "winter",   "coffee",  "silver",
    "market",   "orchid",  "pepper",   "coral",   "marble",   "thunder", "velvet",  "walnut",   "cotton",  "ribbon",
    "salmon",   "spider",  "sugar",    "temple",  "tobacco",  "turtle",  "wagon",   "whale",    "zebra",   "monkey",
    "acorn",    "arrow",   "autumn",   "bacon",   "badger",   "bamboo",  "banana",  "banner",   "barrel",  "beacon",
    "beaver",   "bell",    "berry",    "bicycle", "blanket",  "bottle",  "boulder", "bracket",  "branch",  "bread",
    "breeze",   "brick",   "bronze",   "brush",   "bucket",   "bullet",  "butter",  "button",   "cabin",   "cable",
    "cactus",   "camel",   "camera",   "canal",   "canoe",    "canvas",  "carbon",  "carpet",   "carrot",  "cattle",
    "cellar",   "chain",   "chalk",    "cherry",  "chess",    "chicken", "circus",  "cliff",    "clock",   "cloud",
    "clover",   "coin",    "comet",    "compass", "crane",    "crater",  "cradle",  "cricket",  "crown",   "crystal",
    "curtain",  "dagger",  "daisy",    "diamond", "dinner",   "dolphin", "donkey",  "drum",     "feather", "fence",
    "fiddle",   "flag",    "flame",    "flute",   "fountain", "fox",     "fridge",  "frost",    "funnel",  "gallery",
    "gate",     "ginger",  "giraffe",  "glacier", "glove",    "goose",   "granite", "grape",    "gravel",  "guitar",
    "harbor",   "harvest", "hawk",     "hazel",   "helmet",   "heron",   "honey",   "hornet",   "horse",   "hotel",
    "igloo",    "ink",     "ivory",    "jaguar",  "jelly",    "jewel",   "jungle",  "kitchen",  "kite",    "kitten",
    "lantern",  "lava",    "leaf",     "ledger",  "leopard",  "library", "lily",    "lizard",   "lobster", "locker",
    "lotus",    "magnet",  "mango",    "maple",   "meadow",   "melon",   "metal",   "mill",     "minnow",  "mitten",
    "moon",     "mosaic",  "moss",     "moth",    "mountain", "mouse",   "muffin",  "mustard",  "napkin",  "nest",
    "nickel",   "noodle",  "oak",      "oasis",   "ocean",    "olive",   "onion",   "opal",     "otter",   "oven",
    "owl",      "oyster",  "paddle",   "palace",  "panda",    "paper",   "parrot",  "peach",    "peanut",  "pearl",
    "pebble",   "pelican", "penguin",  "piano",   "pigeon",   "pillow",  "pine",    "pirate",   "pistol",  "plum",
    "pocket",   "pony",    "poppy",    "potato",  "prism",    "puddle",  "pumpkin", "puppet",   "puzzle",  "rabbit",
    "radar",    "radish",  "rain",     "raven",   "reef",     "rhubarb", "rice",    "robin",    "rope",    "rose",
    "ruby",     "sailor",  "salt",     "sand",    "sapphire", "scarf",   "school",  "scissors", "seal",    "shell",
    "shield",   "ship",    "shovel",   "silk",    "skate",    "slate",   "sled",    "snail",    "snow",    "sofa",
    "spoon",    "spruce",  "squirrel", "stable",  "star",     "statue",  "stone",   "storm",    "stove",   "straw",
    "stream",   "sunset",  "swan",     "sword",   "syrup",    "table",   "tailor",  "tea",      "tent",    "thimble",
    "thistle",  "ticket",  "timber",   "toast",   "tomato",   "torch",   "tower",   "train",    "trumpet", "tulip",
    "turnip",   "vase",    "village",  "vine",    "vinegar",  "wall",    "walrus",  "wasp",     "water",   "wheat",
    "wheel",    "whistle", "willow",   "wolf",    "wool",     "yarn",    "zipper",
};

constexpr std::string_view kAdjectives[] = {
    "brave",  "calm",   "dusty", "eager",  "faint",  "gentle", "happy", "icy",   "jolly",  "keen",    "lively",
    "merry",  "noble",  "odd",   "proud",  "quiet",  "rapid",  "shiny", "tame",  "urban",  "vivid",   "warm",
    "young",  "zesty",  "amber", "bitter", "clever", "dark",   "early", "fancy", "golden", "hollow",  "iron",
    "jagged", "blue",   "broad", "cold",   "crisp",  "deep",   "dim",   "dry",   "fair",   "firm",    "flat",
    "fresh",  "grand",  "green", "heavy",  "kind",   "late",   "light", "long",  "loud",   "mild",    "narrow",
    "neat",   "old",    "pale",  "plain",  "polite", "red",    "rich",  "rough", "round",  "scarlet", "sharp",
    "short",  "slim",   "slow",  "small",  "smooth", "soft",   "solid", "sour",  "steep",  "stern",   "still",
    "stout",  "strong", "sweet", "tall",   "thick",  "thin",   "tidy",  "tiny",  "vast",   "violet",  "weary",
    "white",  "wide",   "wild",  "wise",   "yellow",
};

constexpr std::string_view kPeople[] = {
    "actor",    "admiral",   "archer",     "architect",  "artist",     "astronomer", "baker",        "banker",
    "barber",   "beekeeper", "blacksmith", "bookseller", "botanist",   "brewer",     "builder",      "butcher",
    "butler",   "captain",   "carpenter",  "chemist",    "clerk",      "cobbler",    "composer",     "cook",
    "courier",  "dancer",    "dentist",    "detective",  "doctor",     "driver",     "editor",       "engraver",
    "farmer",   "ferryman",  "fisherman",  "florist",    "gardener",   "geologist",  "glazier",      "goldsmith",
    "grocer",   "guard",     "guide",      "hatter",     "herald",     "hunter",     "innkeeper",    "inspector",
    "jeweller", "joiner",    "judge",      "juggler",    "keeper",     "lawyer",     "librarian",    "locksmith",
    "magician", "mason",     "mayor",      "merchant",   "messenger",  "miller",     "miner",        "minister",
    "musician", "notary",    "nurse",      "optician",   "painter",    "pharmacist", "photographer", "pilot",
    "plumber",  "poet",      "porter",     "postman",    "potter",     "printer",    "professor",    "ranger",
    "sailor",   "scholar",   "sculptor",   "secretary",  "shepherd",   "shoemaker",  "singer",       "soldier",
    "surgeon",  "surveyor",  "tailor",     "tanner",     "teacher",    "trader",     "translator",   "treasurer",
    "usher",    "violinist", "waiter",     "warden",     "watchmaker", "weaver",     "wizard",
};

constexpr std::string_view kNumbered[] = {
    "badge number",   "locker number",    "ticket number",     "room number",      "house number",    "account number",
    "licence number", "telephone number", "membership number", "order number",     "passport number", "cabin number",
    "seat number",    "coat number",      "bicycle number",    "boat number",      "parcel number",   "invoice number",
    "receipt number", "patent number",    "pension number",    "insurance number", "contract number", "library number",
    "desk number",    "key number",       "safe number",       "barrel number",    "carriage number", "stall number",
    "shelf number",   "drawer number",    "garden number",     "mailbox number",   "office number",   "platform number",
    "permit number",  "policy number",    "prize number",      "ration number",    "register number", "route number",
    "serial number",  "shop number",      "tax number",        "tent number",      "tool number",     "uniform number",
    "voucher number", "wagon number",
};

constexpr Synonym kPeopleOtherwise[] = {
    {"actor", "stage performer"},
    {"admiral", "fleet commander"},
    {"archer", "bowman"},
    {"astronomer", "stargazer"},
    {"baker", "bread maker"},
    {"banker", "financier"},
    {"barber", "hairdresser"},
    {"beekeeper", "apiarist"},
    {"blacksmith", "ironworker"},
    {"bookseller", "vendor of novels"},
    {"botanist", "plant scientist"},
    {"brewer", "beer maker"},
    {"butcher", "meat cutter"},
    {"butler", "manservant"},
    {"captain", "skipper"},
    {"carpenter", "woodworker"},
    {"composer", "writer of symphonies"},
    {"cook", "chef"},
    {"courier", "dispatch rider"},
    {"dancer", "ballerina"},
    {"dentist", "orthodontist"},
    {"detective", "sleuth"},
    {"doctor", "physician"},
    {"driver", "chauffeur"},
    {"engraver", "etcher"},
    {"farmer", "agriculturist"},
    {"ferryman", "boatman"},
    {"fisherman", "angler"},
    {"florist", "flower seller"},
    {"gardener", "groundskeeper"},
    {"geologist", "rock scientist"},
    {"glazier", "window fitter"},
    {"grocer", "food retailer"},
    {"hatter", "milliner"},
    {"herald", "proclaimer"},
    {"hunter", "game stalker"},
    {"innkeeper", "tavern owner"},
    {"jeweller", "gem dealer"},
    {"judge", "magistrate"},
    {"juggler", "circus entertainer"},
    {"lawyer", "attorney"},
    {"librarian", "archivist"},
    {"locksmith", "key cutter"},
    {"magician", "conjurer"},
    {"mason", "stonecutter"},
    {"mayor", "head of the town"},
    {"miller", "flour grinder"},
    {"miner", "coal digger"},
    {"minister", "clergyman"},
    {"nurse", "caregiver"},
    {"optician", "spectacle maker"},
    {"photographer", "cameraman"},
    {"pilot", "aviator"},
    {"plumber", "pipe fitter"},
    {"poet", "verse writer"},
    {"porter", "baggage carrier"},
    {"postman", "mail deliverer"},
    {"potter", "ceramist"},
    {"printer", "typesetter"},
    {"ranger", "forest officer"},
    {"sailor", "seaman"},
    {"sculptor", "statue carver"},
    {"secretary", "typist"},
    {"shepherd", "sheep herder"},
    {"singer", "vocalist"},
    {"soldier", "infantryman"},
    {"surveyor", "land measurer"},
    {"tailor", "suit maker"},
    {"tanner", "leather worker"},
    {"teacher", "schoolmistress"},
    {"translator", "interpreter"},
    {"treasurer", "holder of the purse"},
    {"violinist", "fiddler"},
    {"waiter", "table server"},
    {"watchmaker", "horologist"},
    {"weaver", "cloth maker"},
};

// "{}" is the person.
constexpr Synonym kNumberedOtherwise[] = {
    {"badge number", "on the {}'s name tag"},       {"locker number", "on the {}'s changing-room cupboard"},
    {"ticket number", "on the {}'s travel pass"},   {"room number", "on the {}'s chamber door"},
    {"house number", "of the {}'s street address"}, {"account number", "of the {}'s bank record"},
    {"licence number", "on the {}'s permit"},       {"telephone number", "that reach the {} by phone"},
    {"membership number", "on the {}'s club card"}, {"order number", "on the {}'s purchase slip"},
};

}  // namespace

std::span<const std::string_view> Nouns() { return kNouns; }
std::span<const std::string_view> Adjectives() { return kAdjectives; }
std::span<const std::string_view> People() { return kPeople; }
std::span<const std::string_view> NumberedThings() { return kNumbered; }
std::span<const Synonym> PeopleOtherwise() { return kPeopleOtherwise; }
std::span<const Synonym> NumberedThingsOtherwise() { return kNumberedOtherwise; }

}  // namespace weir
