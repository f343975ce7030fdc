//! The experts that a mixture's layers chose for each position, for requests that ask for them.
//!
//! A router's choice is a row of a buffer of the program, as an activation is: a function of the tokens up to its position. The
//! engine reads the rows of a step before the next one overwrites them. It reads nothing if no request of the step asks.
//! Read next: `engine.rs`.

use crate::schedule::Decision;
use crate::sequence::Serial;
use crate::{Engine, Event, FloatDevice};
use vosti_core::RowSet;

/// How a device shows routers' choices.
#[derive(Clone, Debug)]
pub struct Routing<D> {
    /// The program's buffer of each mixture's choices, by layer.
    pub buffers: Vec<u32>,
    /// A row of a buffer, as the last step left it: the indices of the experts, in the order of the choice.
    pub read: fn(&D, buffer: u32, row: usize) -> Vec<i32>,
}

/// Where the rows of a sequence are in the step.
pub(crate) struct Place {
    serial: Serial,
    first_position: usize,
    rows: usize,
    first_row: usize,
    first_selected: usize,
}

impl<D: FloatDevice> Engine<D> {
    /// Lets requests ask for routed experts. Without it [`Engine::submit`] refuses those that do.
    pub fn set_routing(&mut self, routing: Option<Routing<D>>) {
        self.routing = routing;
    }

    /// Where the planned step has the rows of sequences that ask for their experts.
    pub(crate) fn routed_places(&self, decisions: &[Decision]) -> Vec<Place> {
        let (mut row, mut selected, mut places) = (0, 0, vec![]);
        for (decision, planned) in decisions.iter().zip(self.core.plan().sequences()) {
            let asks = self.sequences.get(&decision.serial).is_some_and(|sequence| sequence.routed_next != usize::MAX);
            if asks {
                places.push(Place {
                    serial: decision.serial,
                    first_position: planned.first_position,
                    rows: planned.rows,
                    first_row: row,
                    // As if all rows were selected: those before the first selected one are not read.
                    first_selected: (selected + planned.selected).wrapping_sub(planned.rows),
                });
            }
            row += planned.rows;
            selected += planned.selected;
        }
        places
    }

    /// Reports the rows of positions that the step kept and that are not reported yet, in order.
    pub(crate) fn report_routed(&mut self, places: &[Place], on_event: &mut dyn FnMut(Event<'_>)) {
        let Some(routing) = &self.routing else { return };
        let (device, program) = (self.core.device(), self.core.program());
        for place in places {
            let Some(sequence) = self.sequences.get_mut(&place.serial) else { continue };
            let kept = self.core.request(sequence.core).map_or(0, |request| request.cached());
            let end = kept.min(place.first_position + place.rows);
            while sequence.routed_next >= place.first_position && sequence.routed_next < end {
                let at = sequence.routed_next - place.first_position;
                let row = |buffer: u32| match program.buffers[buffer as usize].rows {
                    RowSet::All => place.first_row + at,
                    RowSet::Selected => place.first_selected.wrapping_add(at),
                };
                let layer = |buffer: &u32| (routing.read)(device, *buffer, row(*buffer));
                let experts: Vec<Vec<i32>> = routing.buffers.iter().map(layer).collect();
                let (request, choice, position) = (sequence.request, sequence.choice, sequence.routed_next);
                on_event(Event::Routed { request, choice, position, experts: &experts });
                sequence.routed_next += 1;
            }
        }
    }
}
