"""The style sheet of report.html, for light and dark screens."""

STYLE = """\
:root {
  color-scheme: light dark;
  --text: #1d2126;
  --soft: #5b6470;
  --line: #d6dbe1;
  --paper: #ffffff;
  --tint: #f4f6f8;
  --link: #0b5cad;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e6e9ed;
    --soft: #a3adb8;
    --line: #3a424b;
    --paper: #15181c;
    --tint: #1f242a;
    --link: #7db7f5;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0;
  background: var(--paper);
  color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif;
}
main { max-width: 76rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .75rem; }
h2 {
  font-size: 1.25rem;
  margin: 2.5rem 0 .75rem;
  padding-bottom: .25rem;
  border-bottom: 1px solid var(--line);
}
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
a { color: var(--link); }
nav ul {
  display: flex;
  flex-wrap: wrap;
  gap: .25rem 1.25rem;
  list-style: none;
  margin: 0;
  padding: 0;
}
p { max-width: 48rem; margin: .5rem 0; }
p.note { border-left: 4px solid #e69f00; background: var(--tint); padding: .5rem .75rem; }
p.legend { color: var(--soft); font-size: .875rem; max-width: 60rem; margin: .25rem 0; }
p.input { max-width: none; white-space: pre-wrap; overflow-wrap: anywhere; }
p.input b { display: inline-block; min-width: 3.5rem; }
.scroll { overflow-x: auto; margin: .75rem 0; }
table { border-collapse: collapse; font-size: .9rem; }
th, td {
  padding: .35rem .7rem;
  border-bottom: 1px solid var(--line);
  text-align: left;
  vertical-align: top;
}
thead th { background: var(--tint); vertical-align: bottom; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
thead .number { white-space: normal; }
table.facts th { font-weight: 500; color: var(--soft); white-space: nowrap; }
table.facts td { overflow-wrap: anywhere; }
table.results td:nth-child(1) { min-width: 11rem; }
table.results td:nth-child(2) { white-space: nowrap; }
table.results .number { text-align: left; }
.marks { letter-spacing: .02em; }
table.case { width: 100%; }
table.case td { overflow-wrap: anywhere; }
table.case td:nth-child(1) { white-space: nowrap; }
table.case td:nth-child(2) { width: 48%; font-size: .85rem; }
table.case ol { margin: 0; padding-left: 1.2rem; }
figure { margin: 1rem 0; }
figure img {
  display: block;
  max-width: 100%;
  height: auto;
  background: #ffffff;
  border: 1px solid var(--line);
  border-radius: 6px;
  padding: .5rem;
}
figcaption { color: var(--soft); font-size: .875rem; max-width: 48rem; margin-top: .35rem; }
details { margin: .75rem 0; }
summary { cursor: pointer; color: var(--link); }
"""
