//! Programs that the check refuses, each one edit away from one that it takes.

mod common;
use common::*;
use vosti_core::*;

fn broken(edit: impl FnOnce(&mut Program)) -> ProgramError {
    let mut p = program(&[None, Some(70)]);
    assert_eq!(p.check(), Ok(()));
    edit(&mut p);
    let error = p.check().unwrap_err();
    assert!(!error.advice().is_empty());
    error
}

#[test]
fn ill_formed_programs_are_refused_with_the_op() {
    use ProgramError::*;
    assert_eq!(broken(|p| p.ops.clear()), Empty);
    assert_eq!(broken(|p| p.context = u32::MAX), TooLarge);
    assert_eq!(broken(|p| p.groups[1].window = Some(0)), WindowEmpty { group: 1 });
    assert_eq!(broken(|p| p.layers[1].group = 2), LayerGroup { layer: 1 });
    assert_eq!(broken(|p| p.buffers[2].width = 0), BufferEmpty { buffer: 2 });
    assert_eq!(broken(|p| p.kernels = 0), Empty);
    assert_eq!(broken(|p| p.ops[0] = Op::Embed { k: 1, out: 0 }), KernelOutOfRange { op: 0 });
    assert_eq!(broken(|p| p.ops[0] = Op::Embed { k: 0, out: 9 }), BufferOutOfRange { op: 0 });
    let store = |ins: &[u32], layer, back| Op::StoreKv { k: 0, ins: ins.to_vec(), layer, back };
    assert_eq!(broken(|p| p.ops[2] = store(&[1], 2, 0)), LayerOutOfRange { op: 2 });
    assert_eq!(broken(|p| p.ops[2] = store(&[], 0, 0)), NoInput { op: 2 });
    assert_eq!(broken(|p| p.ops[2] = store(&[2], 0, 0)), ReadBeforeWrite { op: 2 });
    assert_eq!(broken(|p| p.ops[6] = store(&[1], 0, 0)), StoredTwice { op: 6 });
    assert_eq!(broken(|p| p.ops[6] = store(&[1], 1, 70)), WindowBeyondGroup { op: 6 });
    let attend = |layer, window, q, out| Op::Attend { k: 0, q, layer, out, window };
    assert_eq!(broken(|p| p.ops[3] = attend(1, Some(70), 1, 2)), AttendBeforeStore { op: 3 });
    assert_eq!(broken(|p| p.ops[7] = attend(1, None, 1, 2)), WindowBeyondGroup { op: 7 });
    assert_eq!(broken(|p| p.ops[7] = attend(1, Some(70), 1, 1)), OutputIsInput { op: 7 });
    let rowwise = |ins: &[u32], outs: &[u32], rows| Op::Rowwise { k: 0, ins: ins.to_vec(), outs: outs.to_vec(), rows };
    assert_eq!(broken(|p| p.ops[1] = rowwise(&[0], &[], RowSet::All)), NoOutput { op: 1 });
    assert_eq!(broken(|p| p.ops[1] = rowwise(&[0], &[1, 1], RowSet::All)), OutputTwice { op: 1 });
    assert_eq!(broken(|p| p.ops[1] = rowwise(&[0], &[0], RowSet::All)), OutputIsInput { op: 1 });
    assert_eq!(broken(|p| p.ops[1] = rowwise(&[0], &[1], RowSet::Selected)), RowSetMismatch { op: 1 });
    assert_eq!(broken(|p| p.logits = 0), LogitsBuffer);
    assert_eq!(broken(|p| drop(p.ops.pop())), LogitsNeverWritten);
}

#[test]
fn a_store_looks_back_as_far_as_its_group_keeps() {
    let looks_back = |layer: u32, back| {
        let mut p = program(&[None, Some(70)]);
        p.ops[2 + 4 * layer as usize] = Op::StoreKv { k: 0, ins: vec![1], layer, back };
        p.check()
    };
    assert_eq!(looks_back(1, 69), Ok(()));
    assert_eq!(looks_back(1, u32::MAX), Err(ProgramError::WindowBeyondGroup { op: 6 }));
    assert_eq!(looks_back(0, u32::MAX), Ok(()));
}
