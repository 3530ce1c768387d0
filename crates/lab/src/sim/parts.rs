//! Parts of pages: what a browser requests once it has a page (style sheets, images).
//!
//! The parts of a page are requested all at once, as soon as the page has come, with the cookies that the
//! visitor has by then. Their answers have no effect on what the visitor does next.

use std::time::Duration;

use tidegate_core::admission::{Decision, EnteredBy, Presented, SessionClaim};
use tidegate_core::ticket::PassKind;

use super::LATENCY_US;
use super::admission::Caller;
use super::request::{Page, Passage, SessionOf};
use super::sessions::key_of;
use super::trace::What;
use super::world::{Item, World};
use crate::oracle::Entry;
use crate::visitor_events::RequestKind;

impl World<'_> {
    pub(crate) fn page_came(&mut self, number: u32, at_us: u64) {
        let Some(client) = self.clients.get(number) else { return };
        let (kind, step) = (client.visitor.kind(), client.visitor.step());
        if self.mix.kinds[kind as usize].steps[usize::from(step)].parts == 0 {
            return;
        }
        let pass = self.passes.get(number as usize).copied().flatten();
        let page = self.pages.insert(Page { visitor: number, kind, step, pass });
        self.agenda.push(at_us + LATENCY_US, Item::Parts(page));
    }

    pub(crate) fn parts_arrive(&mut self, page: u32) {
        let Some(page) = self.pages.remove(page) else { return };
        for _ in 0..self.mix.kinds[page.kind as usize].steps[usize::from(page.step)].parts {
            self.part_arrives(&page);
        }
    }

    fn part_arrives(&mut self, page: &Page) {
        self.parts.asked += 1;
        self.trace.step(self.now_us, What::AsksPart, page.visitor, u64::from(page.step));
        if self.processes.is_empty() {
            let id = self.note(page.visitor, (page.kind, page.step), true, Passage::default());
            return self.send_to_any_replica(id);
        }
        if self.gate_is_down() {
            return;
        }
        let process = self.processes.len() - 1;
        let Page { visitor: client, kind, step, .. } = *page;
        let class = self.part_routes[kind as usize][usize::from(step)].class;
        let cost = self.processes[process].cost(class);
        let (ask, tier) = (RequestKind::Page, self.tiers[kind as usize]);
        let caller = Caller {
            client,
            ask,
            kind,
            step,
            is_part: true,
            class,
            cost,
            tier,
            process,
            held: Duration::ZERO,
        };
        let here = &self.processes[process];
        here.shard.arrived(caller.class);
        let now = here.now(self.now_us);
        let claimed = here.sessions.as_deref().and_then(|sessions| {
            let pass = page.pass.as_ref().filter(|pass| pass.kind == PassKind::Session);
            let key = key_of(here, pass, page.visitor)?;
            let (rules, tier, cost) = (here.config.session_rules(), caller.tier, caller.cost);
            SessionClaim { sessions, rules, key, pass, tier, cost }.recognise(now).1
        });
        let (decided, begun) = self.decide(&caller, Presented::Nothing, page.pass, claimed.is_none());
        let keeps_cookies = self.mix.kinds[page.kind as usize].cookies;
        self.oracle.part(page.visitor, &decided, keeps_cookies);
        match decided.decision {
            Decision::Enter { by } => {
                let cost = caller.cost;
                let entry = match by {
                    EnteredBy::Room => Entry::AtOnce { cost },
                    _ => Entry::Unasked { cost },
                };
                self.trace.step(self.now_us, What::Passes, page.visitor, u64::from(caller.class.0));
                self.oracle.entered(entry, &self.processes, self.now_us);
                let under_way = claimed.or(begun);
                let session = under_way.as_ref().map(|r| SessionOf { key: r.key(), begins: false });
                let passage = Passage { session, under_way, ..Passage::default() };
                let id = self.note(page.visitor, (page.kind, page.step), true, passage);
                self.enter_gate(id);
            }
            refused => {
                if let Decision::Wait { ticket, .. } = refused {
                    self.oracle.part_waits(&ticket, &self.processes, self.now_us);
                }
                self.parts.refused += 1;
                self.trace.step(self.now_us, What::Shed, page.visitor, u64::from(caller.class.0));
                self.processes[process].finish_quietly(claimed, self.now_us);
            }
        }
    }
}
