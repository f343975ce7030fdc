//! A progress bar on stderr: bytes for fetching and loading, counts for checking.

use super::interrupt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Mutex, MutexGuard};
use vosti_engine::progress::Progress;

/// The unit of a bar.
#[derive(Clone, Copy)]
pub enum Unit {
    Bytes,
    Count,
}

/// Draws progress; [`Progress::cancelled`] is true after Ctrl-C.
pub struct Bar {
    unit: Unit,
    bar: Mutex<Option<ProgressBar>>,
}

impl Bar {
    pub fn new(unit: Unit) -> Self {
        Bar { unit, bar: Mutex::new(None) }
    }

    fn bar(&self) -> MutexGuard<'_, Option<ProgressBar>> {
        self.bar.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn style(&self) -> ProgressStyle {
        let units = match self.unit {
            Unit::Bytes => "{bytes} of {total_bytes}, {bytes_per_sec}",
            Unit::Count => "{pos} of {len}",
        };
        let template = format!("{{msg:<34}} [{{bar:24}}] {units}");
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
    }
}

impl Progress for Bar {
    fn stage(&self, label: &str, total: u64) {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
        bar.set_style(self.style());
        bar.set_message(label.to_string());
        if let Some(old) = self.bar().replace(bar) {
            old.finish_and_clear();
        }
    }

    fn done(&self, units: u64) {
        if let Some(bar) = &*self.bar() {
            bar.set_position(units);
        }
    }

    fn cancelled(&self) -> bool {
        interrupt::interrupted()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar().take() {
            bar.finish_and_clear();
        }
    }
}
