//! The input of admission that comes from the configuration.

use tidegate_core::admission::{self, AdmissionSettings, Facts, Progress, ShadowRoom};
use tidegate_core::classify::RequestHead;
use tidegate_core::policies::{PolicyRequest, TierId};
use tidegate_core::units::{ClassId, Timestamp};

use super::Config;
use tidegate_settings::{Role, WhenFull};

impl Config {
    pub fn admission_settings(&self) -> AdmissionSettings {
        let settings = &self.settings;
        AdmissionSettings {
            role: match settings.role {
                Role::Gate => admission::Role::Gate,
                Role::TokenGen { .. } => admission::Role::TokenGen,
                Role::TokenCheck { .. } => admission::Role::TokenCheck,
            },
            has_room: settings.room.enabled,
            max_wait: settings.room.max_wait,
            burst: settings.room.burst,
            session_rules: self.session_rules(),
            when_full: match settings.session.when_full {
                WhenFull::Room => admission::WhenFull::Room,
                WhenFull::Refuse => admission::WhenFull::Refuse,
            },
        }
    }

    /// The room that counts whom room and session slots would hold, where they are to hold nobody.
    pub fn shadow<'r>(&self, room: &'r ShadowRoom) -> Option<&'r ShadowRoom> {
        self.settings.enforcement.shadow.then_some(room)
    }

    /// The facts of a new request that the configuration determines. `is_part_of_page`: its visitor's browser
    /// says that it asks for a part of a page, not for a page.
    pub fn facts<'a>(
        &'a self,
        request: PolicyRequest<'a>,
        is_part_of_page: bool,
        now: Timestamp,
    ) -> Facts<'a> {
        let tier = self.tiers.get(request.tier);
        Facts {
            class_waits: self.meets_room(request.class),
            // Where classes are named that wait, all of their requests do.
            is_part_of_page: is_part_of_page && self.all_navigations,
            skips_room: tier.is_some_and(|tier| tier.skips_room),
            quota: tier.and_then(|tier| tier.quota()),
            progress: Progress::Start,
            request,
            now,
        }
    }

    /// The class of a request of this service level, which may have a class of its own.
    pub fn classify_for(&self, head: &RequestHead<'_>, tier: TierId) -> ClassId {
        match self.tiers.get(tier).and_then(|tier| tier.class) {
            Some(class) => self.order[class.index()],
            None => self.classify(head),
        }
    }
}
