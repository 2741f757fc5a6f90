//! The columns of a table: `--type A,B`, `--columns`, `--ratio`.

use super::sort::{SortKey, sort_key};
use super::usage;
use profile::Profile;
use view::{ColumnRequest, Measure, Quotient, TableColumn};

/// perf's option for the number of samples.
const SAMPLES_OPTION: &str = "--show-nr-samples";

/// The columns of numbers.
#[derive(Debug, Default, clap::Args)]
pub struct ColumnArgs {
    /// Columns of numbers, separated by commas [default: self,self%,total,total%]
    ///
    /// self, self%, total and total% are columns of each type of --type; TYPE:self and so on of one
    /// type; A/B and A/B:total the ratio of two types. perf's and pprof's names work, too: overhead,
    /// overhead_children, period, sample, flat, flat%, cum and cum%. As in perf, keys of --sort in
    /// the list, such as comm, pid, dso and symbol, group rows.
    #[arg(
        short = 'F',
        long,
        visible_alias = "fields",
        value_name = "COLUMNS",
        help_heading = "View",
        conflicts_with = "over"
    )]
    columns: Option<String>,

    /// Add a column with the number of samples, as perf does
    #[arg(long, hide = true, help_heading = "View", conflicts_with_all = ["columns", "over", "diff"])]
    show_nr_samples: bool,

    /// Add a column with the ratio of two sample types
    ///
    /// The ratio is that of the self values of each row. Can be given several times. The default is
    /// CPI, cycles per instruction, if the profile has both and --columns is not given.
    #[arg(long, value_name = "TYPE/TYPE", help_heading = "View", conflicts_with = "call_graph")]
    ratio: Vec<String>,
}

impl ColumnArgs {
    /// True if an option is given.
    pub fn is_given(&self) -> bool {
        self.given().is_some() || !self.ratio.is_empty()
    }

    /// The option that selects columns of a table, if one does.
    pub fn given(&self) -> Option<&'static str> {
        let names = [(self.columns.is_some(), "--columns"), (self.show_nr_samples, SAMPLES_OPTION)];
        names.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }

    /// The words of `--columns` that group rows.
    pub fn rows(&self) -> Vec<SortKey> {
        let words = self.columns.iter().flat_map(|words| words.split(','));
        words.filter(|word| makes_rows(word)).filter_map(|word| sort_key(word).ok()).collect()
    }

    /// The request for these sample types of a profile; by default, columns have `totals` as well.
    pub fn request(
        &self,
        profile: &Profile,
        types: Vec<usize>,
        totals: bool,
    ) -> anyhow::Result<ColumnRequest> {
        let quotient = |text: &String| {
            Quotient::parse(profile, text).map_err(|why| usage(format!("--ratio: {why}")))
        };
        let mut quotients = self.ratio.iter().map(quotient).collect::<Result<Vec<_>, _>>()?;
        let words = self.columns.as_ref().map(|words| {
            let columns = words.split(',').filter(|word| !makes_rows(word));
            columns.collect::<Vec<_>>().join(",")
        });
        let words = words.filter(|words| !words.is_empty() || self.rows().is_empty());
        let usual = if totals { "self,self%,total,total%,sample" } else { "self,self%,sample" };
        let Some(words) = words.or_else(|| self.show_nr_samples.then(|| usual.to_owned())) else {
            if quotients.is_empty() {
                quotients.extend(Quotient::cpi(profile));
            }
            return Ok(ColumnRequest { types, columns: Vec::new(), quotients });
        };
        let columns = split(&words, |word| columns(profile, &types, word))
            .map_err(|word| unknown(self.given().unwrap_or_default(), profile, &word))?
            .concat();
        Ok(ColumnRequest { types, columns, quotients })
    }
}

fn unknown(option: &str, profile: &Profile, word: &str) -> anyhow::Error {
    let kinds = profile.type_names();
    let there = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
    usage(format!(
        "{option} {word:?}: use self, self%, total, total%, TYPE:self or TYPE/TYPE; the types of \
         this profile are: {there}"
    ))
}

/// The columns of a word.
fn columns(profile: &Profile, types: &[usize], word: &str) -> Option<Vec<TableColumn>> {
    if let Some(measure) = measure(word) {
        return Some(
            types.iter().map(|&type_index| TableColumn::Value { type_index, measure }).collect(),
        );
    }
    if word == "sample"
        && let Some(type_index) = profile.type_index("samples")
    {
        let measure = Measure::SelfValue;
        return Some(vec![TableColumn::Value { type_index, measure }]);
    }
    if let Some((kind, name)) = word.rsplit_once(':')
        && let Some(measure) = measure(name)
    {
        // Of several types of one name, the one that is shown.
        let named = |t: &profile::ValueType| profile.str(t.kind) == kind;
        let shown = types.iter().find(|&&i| profile.sample_types.get(i).is_some_and(named));
        let shown = shown.copied();
        if let Some(type_index) = shown.or_else(|| profile.type_index(kind)) {
            return Some(vec![TableColumn::Value { type_index, measure }]);
        }
        let totals = measure == Measure::Total;
        if (totals || measure == Measure::SelfValue)
            && let Ok(quotient) = Quotient::parse(profile, kind)
        {
            return Some(vec![TableColumn::Ratio { quotient, totals }]);
        }
    }
    let quotient = Quotient::parse(profile, word).ok()?;
    Some(vec![TableColumn::Ratio { quotient, totals: false }])
}

/// True for a word of perf's fields that groups rows, and is no column of numbers.
fn makes_rows(word: &str) -> bool {
    const KEYS: [&str; 17] = [
        "comm",
        "process",
        "pid",
        "tid",
        "thread",
        "cgroup",
        "container",
        "dso",
        "binary",
        "sym",
        "symbol",
        "function",
        "srcline",
        "line",
        "srcfile",
        "file",
        "package",
    ];
    KEYS.contains(&word)
}

fn measure(word: &str) -> Option<Measure> {
    Some(match word {
        "self" | "flat" | "period" => Measure::SelfValue,
        "self%" | "flat%" | "overhead" => Measure::SelfShare,
        "total" | "cum" => Measure::Total,
        "total%" | "cum%" | "overhead_children" => Measure::TotalShare,
        _ => return None,
    })
}

/// Indices of the sample types that `text` names, separated by commas.
pub(super) fn types(profile: &Profile, text: &str) -> Option<Vec<usize>> {
    let mut types = Vec::new();
    for index in split(text, |word| profile.type_index(word)).ok()? {
        if !types.contains(&index) {
            types.push(index);
        }
    }
    Some(types)
}

/// Meanings of the words of a list. Names of types may contain commas: the longest word that has a
/// meaning is taken.
///
/// # Errors
///
/// The first word without a meaning.
fn split<T>(text: &str, meaning: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let parts: Vec<&str> = text.split(',').collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < parts.len() {
        let ends = (at + 1..=parts.len()).rev();
        let mut found = ends.filter_map(|end| Some((end, meaning(&parts[at..end].join(","))?)));
        let Some((end, value)) = found.next() else { return Err(parts[at].to_owned()) };
        out.push(value);
        at = end;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::Builder;

    fn counted() -> Profile {
        let kinds = ["samples", "cycles:u", "instructions:u", "cpu/event=1,umask=2/"];
        Builder::new(&kinds.map(|kind| (kind, "count"))).finish(None)
    }

    fn request(columns: &str, types: &str) -> Result<ColumnRequest, String> {
        let p = counted();
        let args = ColumnArgs { columns: Some(columns.to_owned()), ..ColumnArgs::default() };
        args.request(&p, super::types(&p, types).unwrap(), true).map_err(|e| e.to_string())
    }

    fn value(type_index: usize, measure: Measure) -> TableColumn {
        TableColumn::Value { type_index, measure }
    }

    #[test]
    fn words_are_columns_of_each_type() {
        let both = request("self,total%", "cycles:u,samples").unwrap();
        assert_eq!(both.types, [1, 0]);
        let [own, share] = [Measure::SelfValue, Measure::TotalShare];
        assert_eq!(both.columns, [value(1, own), value(0, own), value(1, share), value(0, share)]);
        let named = request("instructions:u:cum,overhead,cycles:u/instructions:u", "0").unwrap();
        let quotient = Quotient { numerator: 1, denominator: 2 };
        let ratio = TableColumn::Ratio { quotient, totals: false };
        assert_eq!(named.columns, [value(2, Measure::Total), value(0, Measure::SelfShare), ratio]);
        let totals = request("cycles:u/instructions:u:total", "0").unwrap();
        assert_eq!(totals.columns, [TableColumn::Ratio { quotient, totals: true }]);
    }

    #[test]
    fn fields_of_perf_are_columns() {
        let columns = request("overhead,sample,period,comm,sym", "cycles:u").unwrap().columns;
        let [share, own] = [Measure::SelfShare, Measure::SelfValue];
        assert_eq!(columns, [value(1, share), value(0, own), value(1, own)]);
        assert_eq!(request("comm,dso", "cycles:u").unwrap().columns, []);
        let number = |totals| {
            let args = ColumnArgs { show_nr_samples: true, ..ColumnArgs::default() };
            args.request(&counted(), vec![1], totals).unwrap().columns
        };
        assert_eq!(number(false), [value(1, own), value(1, share), value(0, own)]);
        assert_eq!(number(true).len(), 5);
    }

    #[test]
    fn names_may_contain_commas() {
        let p = counted();
        assert_eq!(types(&p, "cpu/event=1,umask=2/,samples,samples"), Some(vec![3, 0]));
        assert_eq!(types(&p, "2"), Some(vec![2]));
        assert_eq!(types(&p, "samples,nothing"), None);
        assert_eq!(types(&p, ""), None);
        let columns = request("cpu/event=1,umask=2/:self", "samples").unwrap().columns;
        assert_eq!(columns, [value(3, Measure::SelfValue)]);
    }

    #[test]
    fn of_two_types_of_one_name_the_shown_one_is_meant() {
        let p = Builder::new(&[("cpu", "count"), ("cpu", "count"), ("cpu", "ns"), ("x", "ns")]);
        let p = p.finish(None);
        assert_eq!(p.type_names(), ["0", "1", "cpu/ns", "x"]);
        assert_eq!(types(&p, "0,1,cpu/ns,x"), Some(vec![0, 1, 2, 3]));
        for shown in 0..3 {
            let found = super::columns(&p, &[shown], "cpu:self");
            assert_eq!(found, Some(vec![value(shown, Measure::SelfValue)]));
        }
        assert_eq!(super::columns(&p, &[3], "cpu:self"), Some(vec![value(0, Measure::SelfValue)]));
    }

    #[test]
    fn other_words_are_refused() {
        for word in ["selfish", "", "samples", "samples:", "a/b", "self,,total"] {
            let error = request(word, "samples").unwrap_err();
            assert!(error.contains("TYPE:self") && error.contains("instructions:u"), "{error}");
        }
    }
}
