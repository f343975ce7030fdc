//! The tile IR of a few kernels. `INSTA_UPDATE=always cargo test -p vosti-tile --test tile_ir_snapshots` renews the
//! snapshots.

/// The printed tile IR of a checked-in text, by its stem.
fn printed(stem: &str) -> String {
    let text = vosti_kernels::ttir_by_stem(stem).unwrap_or_else(|| panic!("{stem}.ttir is not checked in"));
    vosti_tile::lift(text).unwrap_or_else(|error| panic!("{stem}: {error}")).to_string()
}

#[test]
fn linear_is_a_loop_of_loads_and_a_dot() {
    insta::assert_snapshot!(printed("linear-bf16-BK64-BM64-BN64-SWAP0"));
}

#[test]
fn attention_guards_its_state_by_touched_pages() {
    insta::assert_snapshot!(printed("attend-bf16-BQ16-DP64-GP4-PAGE64-ROWS512-SPLIT512"));
}

#[test]
fn attention_folds_a_rows_splits_in_order() {
    insta::assert_snapshot!(printed("attend_combine-bf16-BQ1-DP64-GP4-ROWS512-SPLIT512"));
}

#[test]
fn rope_store_scatters_finite_rows_to_slots() {
    insta::assert_snapshot!(printed("rope_store-bf16-BM64-HP32-PAGE64"));
}
