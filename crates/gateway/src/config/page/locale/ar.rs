//! The page in Arabic.

use super::*;

pub(crate) const STRINGS: Strings = Strings {
    waiting: Heading {
        headline: "أنت في قائمة الانتظار",
        message: "هناك عدد كبير من الزوار الآن. يدخل الجميع حسب ترتيب الوصول.",
    },
    full: Heading {
        headline: "جميع الأماكن محجوزة",
        message: "عدد المنتظرين كبير جدًا ولا يوجد مكان شاغر حاليًا. ستعيد هذه الصفحة المحاولة تلقائيًا.",
    },
    unavailable: Heading {
        headline: "الخدمة لا تستجيب",
        message: "مكانك محفوظ. ستدخل في دورك بمجرد أن تعود الخدمة.",
    },
    forbidden: Heading {
        headline: "هذه التذكرة غير صالحة",
        message: "جرى تعديلها أو أنها تخص شخصًا آخر. يمكنك أخذ مكان جديد.",
    },
    overloaded: Heading {
        headline: "الخدمة مثقلة حاليًا",
        message: "عدد الزوار الآن أكبر مما يمكن خدمته جيدًا. ستحاول هذه الصفحة مرة أخرى من تلقاء نفسها.",
    },
    replaced: "سبق استخدام مكانك السابق، وقد حصلت على مكان جديد.",
    late: "فات دورك، وقد حصلت على مكان جديد.",
    expected: "وقت الانتظار المتوقع",
    ahead: "عدد من قبلك",
    waited: "مدة انتظارك",
    retry: "المحاولة التالية بعد",
    next: "ستدخل تلقائيًا. أبقِ هذه الصفحة مفتوحة، أو عُد قبل دورك: مكانك محفوظ.",
    form: "ما أدخلته محفوظ وسيُرسل مرة واحدة عندما يحين دورك.",
    press: "من دون JavaScript، اضغط الزر عند انتهاء الانتظار.",
    send: "إرسال الآن",
    check: "تحقق الآن",
    restart: "أخذ مكان جديد",
    // The word for "about" follows: before the duration it would change its grammatical case.
    about: "{t} تقريبًا",
    soon: "لحظات قليلة",
    left: "وقت الانتظار المتوقع: {t}.",
    you_next: "أنت التالي.",
    turn: "حان دورك. يجري فتح الصفحة.",
    longer: "يستغرق الأمر وقتًا أطول قليلًا من المتوقع. مكانك محفوظ.",
    lost: "انقطع الاتصال. مكانك محفوظ، وتجري إعادة المحاولة.",
    back: "عاد الاتصال.",
    down: "الخدمة لا تستجيب حاليًا. مكانك محفوظ.",
    sent: "أُرسل نموذجك.",
    plural: Plural::Arabic,
    grouping: Grouping::By3(","),
    second: Unit { one: "ثانية", two: "ثانيتان", few: "{n} ثوان", other: "{n} ثانية" },
    minute: Unit { one: "دقيقة", two: "دقيقتان", few: "{n} دقائق", other: "{n} دقيقة" },
    hour: Unit { one: "ساعة", two: "ساعتان", few: "{n} ساعات", other: "{n} ساعة" },
};
