//! The page in Spanish.

use super::*;

pub(crate) const STRINGS: Strings = Strings {
    waiting: Heading {
        headline: "Está en la fila",
        message: "Hay muchísima gente en este momento. Todas las personas entran por orden de llegada.",
    },
    full: Heading {
        headline: "No quedan lugares",
        message: "Espera tanta gente que por ahora no queda ningún lugar. Esta página lo intenta de nuevo por sí sola.",
    },
    unavailable: Heading {
        headline: "El servicio no responde",
        message: "Su lugar está guardado. En cuanto el servicio responda, entrará cuando le toque.",
    },
    forbidden: Heading {
        headline: "Este tique no es válido",
        message: "Fue modificado por el camino o pertenece a otra persona. Puede tomar un lugar nuevo.",
    },
    overloaded: Heading {
        headline: "El servicio está sobrecargado",
        message: "Ahora mismo hay más personas de las que podemos atender bien. Esta página lo intenta de nuevo por sí sola.",
    },
    replaced: "Su lugar anterior ya se usó; ahora tiene uno nuevo.",
    late: "Su turno había pasado; ahora tiene un lugar nuevo.",
    expected: "Espera prevista",
    ahead: "Personas delante de usted",
    waited: "Tiempo en espera",
    retry: "Próximo intento en",
    next: "Entrará automáticamente. Deje esta página abierta o vuelva antes de su turno: su lugar está guardado.",
    form: "Lo que escribió está guardado y se enviará una sola vez, cuando sea su turno.",
    press: "Sin JavaScript, pulse el botón cuando termine la espera.",
    send: "Enviar ahora",
    check: "Comprobar ahora",
    restart: "Tomar un lugar nuevo",
    about: "alrededor de {t}",
    soon: "En cualquier momento",
    left: "Espera prevista: {t}.",
    you_next: "Es casi su turno.",
    turn: "Es su turno. Se está abriendo la página.",
    longer: "Está tardando un poco más de lo previsto. Su lugar está guardado.",
    lost: "Se perdió la conexión. Su lugar está guardado; intentando de nuevo.",
    back: "Conexión recuperada.",
    down: "El servicio no responde en este momento. Su lugar está guardado.",
    sent: "Su formulario ya se envió.",
    plural: Plural::One,
    grouping: Grouping::By3FromFive("."),
    second: Unit::two_forms("{n} segundo", "{n} segundos"),
    minute: Unit::two_forms("{n} minuto", "{n} minutos"),
    hour: Unit::two_forms("{n} hora", "{n} horas"),
};
