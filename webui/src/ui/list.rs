//! Long lists: what was searched for, a hundred at a time.

use serde::Deserialize;

use super::show;

/// The query of a list.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ListQuery {
    /// Part of what is shown.
    #[serde(default)]
    pub(crate) q: String,
    /// Page, from 1.
    #[serde(default)]
    pub(crate) page: usize,
}

/// Where a list is.
#[derive(Clone, Debug)]
pub(crate) struct Paging {
    /// What was searched for.
    pub(crate) q: String,
    /// How many there are that fit.
    pub(crate) total: usize,
    /// How many there are in all.
    pub(crate) all: usize,
    /// Number of the first one shown, from 1; 0 when none is.
    pub(crate) first: usize,
    /// Number of the last one shown.
    pub(crate) last: usize,
    /// The page before.
    pub(crate) before: Option<String>,
    /// The page behind.
    pub(crate) next: Option<String>,
}

impl ListQuery {
    /// Whether one of these texts has what is searched for.
    pub(crate) fn finds<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> bool {
        let wanted = self.q.trim().to_lowercase();
        wanted.is_empty()
            || texts
                .into_iter()
                .any(|text| text.to_lowercase().contains(&wanted))
    }

    /// The part of what was found that the page shows.
    pub(crate) fn cut<T>(&self, mut found: Vec<T>, all: usize) -> (Vec<T>, Paging) {
        let total = found.len();
        let pages = total.div_ceil(AT_ONCE).max(1);
        let page = self.page.clamp(1, pages);
        let begin = (page - 1) * AT_ONCE;
        found = found.into_iter().skip(begin).take(AT_ONCE).collect();
        let link = |page: usize| format!("?{}", show::query(&[("q", &self.q), ("page", &page.to_string())]));
        let paging = Paging {
            q: self.q.clone(),
            total,
            all,
            first: if found.is_empty() { 0 } else { begin + 1 },
            last: begin + found.len(),
            before: (page > 1).then(|| link(page - 1)),
            next: (page < pages).then(|| link(page + 1)),
        };
        (found, paging)
    }
}

const AT_ONCE: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_into_pages_and_a_page_too_far_is_the_last() {
        let query = ListQuery {
            q: "a b".to_owned(),
            page: 9,
        };
        let (shown, paging) = query.cut((0..250).collect(), 400);
        assert_eq!((shown.len(), shown[0]), (50, 200));
        assert_eq!((paging.first, paging.last, paging.total), (201, 250, 250));
        assert_eq!(paging.before.as_deref(), Some("?q=a%20b&page=2"));
        assert_eq!(paging.next, None);
        let (none, paging) = query.cut(Vec::<u8>::new(), 0);
        assert_eq!((none.len(), paging.first, paging.last), (0, 0, 0));
    }
}
