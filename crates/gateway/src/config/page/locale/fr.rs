//! The page in French.

use super::*;

pub(crate) const STRINGS: Strings = Strings {
    waiting: Heading {
        headline: "Vous êtes dans la file",
        message: "Beaucoup de monde est là en ce moment. Chacun entre dans l’ordre d’arrivée.",
    },
    full: Heading {
        headline: "Toutes les places sont prises",
        message: "Tant de personnes attendent qu’il n’y a plus de place pour l’instant. Cette page réessaie d’elle-même.",
    },
    unavailable: Heading {
        headline: "Le service ne répond pas",
        message: "Votre place est gardée. Dès que le service répond, vous entrerez à votre tour.",
    },
    forbidden: Heading {
        headline: "Ce ticket n’est pas valable",
        message: "Il a été modifié en chemin ou appartient à quelqu’un d’autre. Vous pouvez prendre une nouvelle place.",
    },
    overloaded: Heading {
        headline: "Le service est surchargé",
        message: "Il y a en ce moment plus de monde que nous ne pouvons en servir correctement. Cette page réessaie d’elle-même.",
    },
    replaced: "Votre place précédente a déjà servi ; vous en avez une nouvelle.",
    late: "Votre tour était passé ; vous avez une nouvelle place.",
    expected: "Attente prévue",
    ahead: "Personnes devant vous",
    waited: "Vous attendez depuis",
    retry: "Prochain essai dans",
    next: "Vous entrerez automatiquement. Gardez cette page ouverte, ou revenez avant votre tour : votre place est gardée.",
    form: "Votre saisie est gardée et sera envoyée une seule fois, quand ce sera votre tour.",
    press: "Sans JavaScript, appuyez sur le bouton quand l’attente est finie.",
    send: "Envoyer maintenant",
    check: "Vérifier maintenant",
    restart: "Prendre une nouvelle place",
    about: "environ {t}",
    soon: "D’un instant à l’autre",
    left: "Attente prévue : {t}.",
    you_next: "C’est bientôt à vous.",
    turn: "C’est votre tour. La page s’ouvre.",
    longer: "C’est un peu plus long que prévu. Votre place est gardée.",
    lost: "Connexion perdue. Votre place est gardée, nouvel essai en cours.",
    back: "Connexion rétablie.",
    down: "Le service ne répond pas pour le moment. Votre place est gardée.",
    sent: "Votre formulaire a été envoyé.",
    plural: Plural::ZeroOne,
    grouping: Grouping::By3("\u{202f}"),
    second: Unit::two_forms("{n} seconde", "{n} secondes"),
    minute: Unit::two_forms("{n} minute", "{n} minutes"),
    hour: Unit::two_forms("{n} heure", "{n} heures"),
};
