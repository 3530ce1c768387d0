//! The page in Chinese.

use super::*;

pub(crate) const STRINGS: Strings = Strings {
    waiting: Heading {
        headline: "您正在排队", message: "现在来访的人很多。所有人按到达的先后顺序进入。"
    },
    full: Heading {
        headline: "排队名额已满", message: "正在等候的人太多，暂时没有名额。本页面会自动重试。"
    },
    unavailable: Heading {
        headline: "服务暂时没有响应",
        message: "您的位置已保留。服务恢复后，轮到您时即可进入。",
    },
    forbidden: Heading {
        headline: "此凭证无效", message: "它在途中被更改，或属于其他人。您可以重新取号。"
    },
    overloaded: Heading {
        headline: "服务已过载", message: "目前访问人数超出了服务能力。本页面会自动重试。"
    },
    replaced: "您之前的位置已被使用，现已为您安排新的位置。",
    late: "您的轮次已过，现已为您安排新的位置。",
    expected: "预计等待时间",
    ahead: "您前面的人数",
    waited: "已等待",
    retry: "下次重试",
    next: "轮到您时会自动进入。请保持此页面打开，或在轮到您之前回来：您的位置会保留。",
    form: "您填写的内容已保存，轮到您时会提交一次。",
    press: "如未启用 JavaScript，请在等待结束后按下按钮。",
    send: "立即提交",
    check: "立即查看",
    restart: "重新取号",
    about: "约 {t}",
    soon: "马上就好",
    left: "预计等待时间：{t}。",
    you_next: "下一位就是您。",
    turn: "轮到您了，正在打开页面。",
    longer: "所需时间比预计稍长。您的位置已保留。",
    lost: "连接已断开。您的位置已保留，正在重试。",
    back: "连接已恢复。",
    down: "服务暂时没有响应。您的位置已保留。",
    sent: "您的表单已提交。",
    plural: Plural::None,
    grouping: Grouping::By3(","),
    second: Unit::two_forms("{n}秒钟", "{n}秒钟"),
    minute: Unit::two_forms("{n}分钟", "{n}分钟"),
    hour: Unit::two_forms("{n}小时", "{n}小时"),
};
