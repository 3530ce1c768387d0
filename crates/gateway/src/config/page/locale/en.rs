//! The page in English.

use super::*;

pub(crate) const STRINGS: Strings = Strings {
    waiting: Heading {
        headline: "You are in line",
        message: "A lot of people are here right now. Everyone is admitted in the order they came.",
    },
    full: Heading {
        headline: "All places are taken",
        message: "So many people are waiting that there is no place left for now. This page tries again by itself.",
    },
    unavailable: Heading {
        headline: "The service is not answering",
        message: "Your place is kept. As soon as the service answers again, you are let in on your turn.",
    },
    forbidden: Heading {
        headline: "This ticket is not valid",
        message: "It was changed on its way or belongs to somebody else. You can take a new place.",
    },
    overloaded: Heading {
        headline: "The service is overloaded",
        message: "More people are here right now than can be served well. This page tries again by itself.",
    },
    replaced: "Your earlier place has been used, so you have a new one.",
    late: "Your turn had passed, so you have a new place.",
    expected: "Expected wait",
    ahead: "People ahead of you",
    waited: "You have waited",
    retry: "Next try in",
    next: "You will be let in automatically. Keep this page open, or come back before your turn: your place is kept.",
    form: "What you entered is kept and is sent once, when it is your turn.",
    press: "Without JavaScript, press the button when the wait is over.",
    send: "Send now",
    check: "Check now",
    restart: "Take a new place",
    about: "about {t}",
    soon: "Any moment now",
    left: "Expected wait: {t}.",
    you_next: "You are next.",
    turn: "It is your turn. Opening the page.",
    longer: "It is taking a little longer than expected. Your place is kept.",
    lost: "Connection lost. Your place is kept, trying again.",
    back: "Connected again.",
    down: "The service is not answering at the moment. Your place is kept.",
    sent: "Your form has been sent.",
    plural: Plural::One,
    grouping: Grouping::By3(","),
    second: Unit::two_forms("{n} second", "{n} seconds"),
    minute: Unit::two_forms("{n} minute", "{n} minutes"),
    hour: Unit::two_forms("{n} hour", "{n} hours"),
};
