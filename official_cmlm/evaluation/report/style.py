"""The style sheet of the HTML report: light and dark, wide and narrow."""

STYLE = """\
:root {
  --page: #fcfcfd; --raised: #f2f4f7; --ink: #1a1c20; --muted: #5c626b; --grid: #d9dce1;
  --own: #e3eef6; --alarm: #b3261e; --alarm-page: #fdeceb; --link: #00598c;
  --series-0: #a3a9b2; --series-1: #0072b2; --series-2: #d55e00; --series-3: #009e73;
  --series-4: #b3589a; --series-5: #c98a00;
  --language-1: #5b4bb0; --language-2: #7a5c2e; --language-3: #8f1d3f; --language-4: #6f8212;
  --language-5: #3f8f9f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14161a; --raised: #1e2127; --ink: #e6e8eb; --muted: #a0a7b1; --grid: #363b44;
    --own: #1b3345; --alarm: #ff8a80; --alarm-page: #3a1c1b; --link: #7cc4f0;
    --series-0: #6d747f; --series-1: #4aa8e0; --series-2: #f08a3c; --series-3: #2fc39a;
    --series-4: #dc8cc4; --series-5: #e5b13a;
    --language-1: #a79bf0; --language-2: #b8976a; --language-3: #e8718f; --language-4: #b3c653;
    --language-5: #7cc8d6;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 0 0 .25rem; }
h3, h4 { font-size: 1rem; margin: 1.75rem 0 .5rem; }
a { color: var(--link); }
section { border-top: 1px solid var(--grid); padding-top: 1.25rem; margin-top: 2.5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 1rem 0; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; padding: 0; }
li { overflow-wrap: anywhere; }
.notice {
  border: 1px solid var(--grid); border-left-width: 5px; border-radius: 4px;
  background: var(--raised); padding: .75rem 1rem; margin: 1rem 0;
}
.notice h2 { font-size: 1rem; }
.notice ul { margin: .25rem 0 0; padding-left: 1.2rem; }
.failures { border-color: var(--alarm); background: var(--alarm-page); }
.failures h2 { color: var(--alarm); }
.missing { font-size: .9rem; }
.swatch {
  display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em;
}
.series-1 { background: var(--series-1); }
.series-2 { background: var(--series-2); }
.series-3 { background: var(--series-3); }
.series-4 { background: var(--series-4); }
.series-5 { background: var(--series-5); }
.box { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th { text-align: left; font-weight: 400; }
thead th { color: var(--muted); border-bottom: 2px solid var(--grid); vertical-align: bottom; }
tbody th { position: sticky; left: 0; background: var(--page); }
.number { text-align: right; }
td.text { white-space: normal; overflow-wrap: anywhere; min-width: 8.5rem; }
thead th { white-space: normal; overflow-wrap: break-word; max-width: 10rem; }
.own td, .own th { background: var(--own); }
strong { font-weight: 700; }
.facts td { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; vertical-align: top; }
.footnote { font-size: .85rem; color: var(--muted); margin: .4rem 0 0; max-width: 48rem; }
figure { margin: 1.5rem 0; }
figcaption { font-weight: 600; margin-bottom: .5rem; }
svg { display: block; width: 100%; max-width: 35rem; min-width: 22rem; height: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif !important; }
details { margin: 1.25rem 0; }
summary { cursor: pointer; color: var(--link); }
@media (max-width: 40rem) {
  /* A long name must not hide the figures beside it. */
  tbody th { max-width: 42vw; white-space: normal; }
}
"""
