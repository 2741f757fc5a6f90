//! `prof flame --sandwich`.

use super::{DrawArgs, leave_out_negative};
use crate::cli::output::Output;
use crate::cli::usage;
use crate::report::colors::Scheme;
use crate::report::flame::FlameOptions;
use crate::report::text::quoted;
use crate::report::{flame, json, sandwich as text, summary as view_summary};
use view::answer::SandwichBoxesAnswer;
use view::query::regex_reason;
use view::{Cut, Sandwich, SandwichBoxes, View, named_frames};

impl DrawArgs {
    /// Draws the callers and the callees of the functions `wanted`. The number of bytes written.
    pub(super) fn draw_sandwich(
        &self,
        wanted: &str,
        view: &mut View<'_>,
        output: Output,
        quiet: bool,
    ) -> anyhow::Result<u64> {
        leave_out_negative(view, quiet)?;
        let name = quoted(wanted);
        let functions = named_frames(view, wanted).map_err(|error| {
            let reason = regex_reason(&error);
            usage(format!(
                "--sandwich: no function has the name {name}, and it is not a regular \
                 expression: {reason}"
            ))
        })?;
        anyhow::ensure!(!functions.is_empty(), "--sandwich: no function matches {name}");
        if self.colors == Some(Scheme::State) {
            return Err(usage("--sandwich has no colours by state; choose other --colors"));
        }
        let sandwich = Sandwich::new(view, &functions, Cut::Width(self.min_width));
        anyhow::ensure!(
            sandwich.total > 0,
            "nothing to draw: no sample that passes the filters has {name}"
        );
        let names = text::names(view, &functions);
        let options = FlameOptions {
            title: self.title.clone().unwrap_or_else(|| format!("Sandwich of {names}")),
            subtitle: format!("{} · {}", view_summary::title(view), text::totals(view, &sandwich)),
            inverted: !self.flame,
            order: self.order(),
            width: self.width.map(|w| w as usize),
            min_width: self.min_width,
            scheme: self.colors.unwrap_or_default(),
        };
        output.write_text(|out| {
            if self.json {
                let FlameOptions { order, min_width, .. } = options;
                let boxes = SandwichBoxes::new(view, &sandwich, order, min_width);
                let answer = SandwichBoxesAnswer::new(view, &sandwich, &boxes, &functions);
                json::write(out, &answer)
            } else {
                flame::sandwich::write(out, view, &sandwich, &options)
            }
        })
    }
}
