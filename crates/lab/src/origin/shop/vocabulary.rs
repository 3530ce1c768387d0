//! The vocabulary of the shop. Some words need escaping in HTML: a page that forgets it shows at once.

/// Categories; their number is 1 + the index.
#[rustfmt::skip]
pub const CATEGORIES: [&str; 20] = [
    "Antiques & Art", "Books", "Business & Office", "Clothing", "Coins", "Collectibles", "Computers",
    "Dolls & Bears", "Electronics", "Home & Garden", "Jewelry", "Movies", "Music", "Instruments",
    "Photography", "Pottery & Glass", "Sports", "Stamps", "Tickets", "Toys & Games",
];

/// Where users live; their number is 1 + the index.
#[rustfmt::skip]
pub const REGIONS: [&str; 12] = [
    "Alsace", "Bavaria", "Bihar", "Catalonia", "Gujarat", "Hokkaido", "Kerala", "Maharashtra", "Ontario",
    "Oregon", "Texas", "Wales",
];

/// How things are. The first are by far the most frequent (see `fill.rs`).
#[rustfmt::skip]
pub const ADJECTIVES: [&str; 48] = [
    "old", "new", "small", "large", "blue", "red", "green", "wooden", "rare", "fine", "signed", "heavy",
    "light", "brass", "silver", "golden", "porcelain", "leather", "woollen", "silk", "painted", "carved",
    "polished", "restored", "complete", "unopened", "early", "Victorian", "French", "Indian", "Japanese",
    "Danish", "hand-made", "folding", "portable", "electric", "mechanical", "wind-up", "enamelled",
    "engraved", "numbered", "limited", "oversized", "miniature", "round", "tall", "curious", "splendid",
];

#[rustfmt::skip]
pub const NOUNS: [&str; 72] = [
    "clock", "chair", "lamp", "book", "camera", "radio", "vase", "table", "map", "coin", "stamp", "guitar",
    "violin", "piano stool", "teapot", "bowl", "carpet", "mirror", "cabinet", "typewriter", "telescope",
    "compass", "globe", "barometer", "sextant", "lens", "tripod", "projector", "poster", "print", "etching",
    "frame", "doll", "bear", "train", "locomotive", "carriage", "bicycle", "saddle", "helmet", "racket",
    "football", "oar", "jacket", "coat", "hat", "scarf", "boots", "ring", "necklace", "brooch", "bracelet",
    "watch", "chain", "keyboard", "terminal", "modem", "printer", "calculator", "ledger", "desk", "inkwell",
    "fountain pen", "music box", "record player", "accordion", "trumpet", "potter's wheel",
    "salt & pepper set", "chess board", "kite", "umbrella stand",
];

/// What descriptions say around them.
#[rustfmt::skip]
pub const PHRASES: [&str; 24] = [
    "in very good condition", "with some traces of use", "from a smoke-free home",
    "bought at an estate sale", "one small scratch at the back", "see the measurements below",
    "please ask before you bid", "no reserve", "ships within two days", "collection preferred",
    "tested & working", "sold as found", "the maker's label is intact", "a present for a collector",
    "the lid closes tightly", "would look well beside a", "comes with its original box and a",
    "was my grandmother's", "I am clearing the attic", "slightly faded by the sun",
    "width < 30 cm, height > 50 cm", "all parts are there", "cleaned by a professional",
    "the key is missing",
];

/// What buyers and sellers say of each other.
#[rustfmt::skip]
pub const REMARKS: [&str; 8] = [
    "Prompt & friendly.", "Well packed, thank you!", "As described.",
    "Slow to answer, but it came in the end.", "I'd buy from this seller again.",
    "Not quite what the picture showed.", "Paid at once.", "A+++, what's not to like?",
];
