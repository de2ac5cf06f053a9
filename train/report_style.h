// The style sheet of the report page: one for light and dark, colours by name so that charts and text agree.
#pragma once

namespace draftsmith {

inline constexpr const char* kReportStyle = R"css(
:root { color-scheme: light dark;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1d2430; --soft: #667085; --rule: #e3e1da; --accent: 37 99 180;
  --c0: #2563b4; --c1: #d9772b; --c2: #2f8f5b; --c3: #a3429b; --c4: #8a6d1c; --c5: #27889a; --c6: #c23b4b; --c7: #6b7280; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171c; --card: #1c2027; --ink: #e7e9ee; --soft: #9aa3b2; --rule: #2e343e; --accent: 96 165 250;
  --c0: #60a5fa; --c1: #f2a35e; --c2: #5fc08c; --c3: #d58bce; --c4: #d3b45a; --c5: #5fc2d4; --c6: #f0808c; --c7: #9aa3b2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 40px 24px 56px; }
h1 { font-size: 1.7rem; margin: 0 0 24px; letter-spacing: -0.01em; }
h1 small { color: var(--soft); font-size: 0.9rem; font-weight: 400; letter-spacing: 0; margin-left: 8px; }
h2 { font-size: 1.15rem; margin: 44px 0 14px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 14px; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 16px 18px; display: flex; flex-direction: column; }
.tile b { font-size: 2rem; line-height: 1.15; font-weight: 650; font-variant-numeric: tabular-nums; }
.tile span { font-weight: 600; margin-top: 2px; }
.tile small, .note, footer { color: var(--soft); font-size: 0.86rem; }
.tile small { margin-top: 6px; line-height: 1.4; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 14px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 14px 12px 8px; }
figcaption { font-weight: 600; font-size: 0.95rem; padding: 0 6px 6px; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
svg .value { fill: var(--ink); font-weight: 600; }
.grid { stroke: var(--rule); }
.line { fill: none; stroke-width: 2; } .pale { fill: none; stroke-width: 1; opacity: 0.28; }
.line0 { stroke: var(--c0); } .line1 { stroke: var(--c1); } .line2 { stroke: var(--c2); } .line3 { stroke: var(--c3); }
.line4 { stroke: var(--c4); } .line5 { stroke: var(--c5); } .line6 { stroke: var(--c6); } .line7 { stroke: var(--c7); }
.fill0 { fill: var(--c0); } .fill1 { fill: var(--c1); } .fill2 { fill: var(--c2); } .fill3 { fill: var(--c3); }
.fill4 { fill: var(--c4); } .fill5 { fill: var(--c5); } .fill6 { fill: var(--c6); } .fill7 { fill: var(--c7); }
.scroll { overflow-x: auto; margin-top: 14px; }
table { border-collapse: collapse; width: 100%; background: var(--card); border: 1px solid var(--rule); font-variant-numeric: tabular-nums; }
th, td { padding: 8px 12px; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { font-size: 0.84rem; color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
tr.all td { font-weight: 650; border-bottom: 0; }
article { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 12px 18px; margin: 12px 0; }
article header { font-weight: 600; } article em { color: var(--soft); font-style: normal; font-weight: 400; margin-left: 6px; }
.right { float: right; color: var(--soft); font-weight: 600; font-variant-numeric: tabular-nums; }
details { color: var(--soft); font-size: 0.86rem; margin: 4px 0; } summary { cursor: pointer; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 6px 0; font: 0.9rem/1.9 ui-monospace, "SF Mono", Consolas, monospace; }
.answer span, .note span { border-radius: 4px; padding: 2px 1px; box-shadow: inset 1px 0 0 var(--card); -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.k1 { background: rgb(var(--accent) / 0.05); } .k2 { background: rgb(var(--accent) / 0.14); } .k3 { background: rgb(var(--accent) / 0.22); }
.k4 { background: rgb(var(--accent) / 0.30); } .k5 { background: rgb(var(--accent) / 0.36); } .k6 { background: rgb(var(--accent) / 0.42); }
.k7 { background: rgb(var(--accent) / 0.48); } .k8 { background: rgb(var(--accent) / 0.54); }
footer { margin-top: 44px; border-top: 1px solid var(--rule); padding-top: 14px; }
code { font: 0.9em ui-monospace, Consolas, monospace; }
)css";

}  // namespace draftsmith
