//! The page in German.

use super::*;

pub(crate) const STRINGS: Strings = Strings {
    waiting: Heading {
        headline: "Sie sind in der Warteschlange",
        message: "Gerade sind sehr viele Menschen hier. Alle kommen in der Reihenfolge ihrer Ankunft dran.",
    },
    full: Heading {
        headline: "Alle Plätze sind vergeben",
        message: "Es warten so viele Menschen, dass im Moment kein Platz frei ist. Diese Seite versucht es von selbst wieder.",
    },
    unavailable: Heading {
        headline: "Der Dienst antwortet nicht",
        message: "Ihr Platz bleibt erhalten. Sobald der Dienst wieder antwortet, kommen Sie an die Reihe.",
    },
    forbidden: Heading {
        headline: "Dieses Ticket ist ungültig",
        message: "Es wurde unterwegs verändert oder gehört jemand anderem. Sie können einen neuen Platz nehmen.",
    },
    overloaded: Heading {
        headline: "Der Dienst ist überlastet",
        message: "Gerade sind mehr Menschen hier, als gut bedient werden können. Diese Seite versucht es von selbst wieder.",
    },
    replaced: "Ihr früherer Platz wurde schon benutzt; Sie haben einen neuen.",
    late: "Sie waren schon an der Reihe; Sie haben einen neuen Platz.",
    expected: "Voraussichtliche Wartezeit",
    ahead: "Personen vor Ihnen",
    waited: "Bisher gewartet",
    retry: "Nächster Versuch in",
    next: "Sie werden automatisch eingelassen. Lassen Sie diese Seite offen oder kommen Sie rechtzeitig zurück: Ihr Platz bleibt erhalten.",
    form: "Ihre Eingaben sind gesichert und werden einmal gesendet, sobald Sie an der Reihe sind.",
    press: "Ohne JavaScript: Drücken Sie den Knopf, wenn die Wartezeit vorbei ist.",
    send: "Jetzt senden",
    check: "Jetzt prüfen",
    restart: "Neuen Platz nehmen",
    about: "etwa {t}",
    soon: "Gleich ist es so weit",
    left: "Voraussichtliche Wartezeit: {t}.",
    you_next: "Sie sind als Nächstes dran.",
    turn: "Sie sind an der Reihe. Die Seite wird geöffnet.",
    longer: "Es dauert etwas länger als erwartet. Ihr Platz bleibt erhalten.",
    lost: "Verbindung unterbrochen. Ihr Platz bleibt erhalten, neuer Versuch läuft.",
    back: "Wieder verbunden.",
    down: "Der Dienst antwortet gerade nicht. Ihr Platz bleibt erhalten.",
    sent: "Ihr Formular wurde gesendet.",
    plural: Plural::One,
    grouping: Grouping::By3("."),
    second: Unit::two_forms("{n} Sekunde", "{n} Sekunden"),
    minute: Unit::two_forms("{n} Minute", "{n} Minuten"),
    hour: Unit::two_forms("{n} Stunde", "{n} Stunden"),
};
