"""The causal graph of a trace with the attack's chain marked: a static SVG, and HTML that can be explored. No dependencies."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from icml26_plugin_causaltrace.detector import Analysis, explain
from icml26_plugin_causaltrace.graph import Edge
from icml26_plugin_causaltrace.trace import Step, Trace

ROW, TOP, LEFT, BOX_WIDTH, BOX_HEIGHT, WIDTH = 64, 84, 150, 420, 46, 960
#: More steps than this are not drawn one by one: those that no drawn edge touches are left out, and counted.
MAX_DRAWN = 60
# Marks that turn the direction of what follows, or show nothing: a reader must see them, not what they make of the text.
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
COLOURS = {"data": "#2b6cb0", "trust": "#c53030", "state": "#718096"}
CHAIN = "#c53030"


def draw_svg(analysis: Analysis, trace: Trace) -> str:
    """The trace from top to bottom; arcs are influence, red ones instructions, the bold path is the chain."""
    shown = shown_steps(analysis, trace)
    place = {number: k for k, number in enumerate(shown)}
    height = TOP + ROW * len(shown) + 70
    chain = set(zip(analysis.chain, analysis.chain[1:], strict=False))
    edges = [e for e in analysis.graph.edges if e.source in place and e.target in place]
    edges.sort(key=lambda e: ((e.source, e.target) in chain, e.type == "trust"))
    hidden = len(trace.steps) - len(shown)
    note = f" · {hidden} steps without influence not shown" if hidden else ""
    finding = analysis.finding
    verdict = "ATTACK" if analysis.is_attack else "no alarm"
    effect = f" · PN {finding.effect.pn:.2f} · ATE {finding.effect.ate:.2f}" if finding else ""
    title = f"{verdict} · score {analysis.score:.2f}{effect}{note}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="Helvetica,Arial,sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        "<defs>" + "".join(_marker(kind, colour) for kind, colour in COLOURS.items()) + "</defs>",
        _text(24, 30, title, size=17, weight="bold", fill=CHAIN if analysis.is_attack else "#1a202c"),
        _text(24, 54, "user: " + _cut(trace.task_text().replace("\n", " "), 120), size=13, fill="#2f855a"),
    ]
    parts += [_edge(e, place, (e.source, e.target) in chain) for e in edges]
    parts += [_box(analysis, trace.steps[n], n, TOP + ROW * place[n]) for n in shown]
    parts += [_legend(height - 34), "</svg>"]
    return "\n".join(parts)


def shown_steps(analysis: Analysis, trace: Trace) -> list[int]:
    """All steps of a short trace; of a long one those of the chain, its slice and its sinks, up to ``MAX_DRAWN``."""
    n = len(trace.steps)
    if n <= MAX_DRAWN:
        return list(range(n))
    ranked = list(analysis.chain) + [f.step for f in sorted(analysis.findings, key=lambda f: -f.score)]
    if analysis.slice:
        ranked += sorted(analysis.slice.chop) + sorted(analysis.slice.backward)
    return sorted(list(dict.fromkeys(ranked))[:MAX_DRAWN])


def _box(analysis: Analysis, step: Step, number: int, y: float) -> str:
    pair, finding = analysis.pair, analysis.finding
    role, stroke, fill = "", "#a0aec0", "#f7fafc"
    evidence = analysis.evidence[number]
    if evidence.sensitive:
        role, stroke, fill = "can do harm", "#dd6b20", "#fffaf0"
    if finding and number == finding.step and pair:
        role, stroke, fill = f"harm: score {finding.score:.2f}", CHAIN, "#fff5f5"
    elif pair and number == pair.source:
        role, stroke, fill = "injected text", CHAIN, "#fff5f5"
    dash = ' stroke-dasharray="5 3"' if step.error else ""
    width = 2.5 if stroke == CHAIN else 1.2
    arguments = _cut(json.dumps(dict(step.arguments), ensure_ascii=False, default=str), 62)
    return "".join(
        [
            f"<g><title>{escape(_cut(step.result or '', 800))}</title>",
            f'<rect x="{LEFT}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="7" fill="{fill}" stroke="{stroke}" '
            f'stroke-width="{width}"{dash}/>',
            _text(LEFT - 14, y + 28, str(number), size=13, anchor="end", fill="#4a5568"),
            _text(LEFT + 12, y + 19, _cut(step.tool, 46) + (" (failed)" if step.error else ""), size=14, weight="bold"),
            _text(LEFT + 12, y + 37, arguments, size=11, fill="#4a5568"),
            _text(
                LEFT + BOX_WIDTH - 10,
                y + 19,
                role,
                size=11,
                anchor="end",
                fill=stroke if stroke != "#a0aec0" else "#718096",
            ),
            "</g>",
        ]
    )


def _edge(edge: Edge, place: dict[int, int], in_chain: bool) -> str:
    start = TOP + ROW * place[edge.source] + BOX_HEIGHT / 2 + 8
    end = TOP + ROW * place[edge.target] + BOX_HEIGHT / 2 - 8
    x = LEFT + BOX_WIDTH
    reach = min(340.0, 46.0 + 26.0 * (place[edge.target] - place[edge.source]))
    colour = COLOURS[edge.type]
    width, opacity = (3.6, 1.0) if in_chain else (1.3, 0.55)
    tip = f"{edge.type} {edge.source} -> {edge.target}, weight {edge.weight:.2f}: {_cut(edge.evidence, 200)}"
    return (
        f'<path d="M {x} {start} C {x + reach:.0f} {start}, {x + reach:.0f} {end}, {x + 4} {end}" fill="none" stroke="{colour}" '
        f'stroke-width="{width}" opacity="{opacity}" marker-end="url(#{edge.type})"><title>{escape(tip)}</title></path>'
    )


def _marker(kind: str, colour: str) -> str:
    return (
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" '
        f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
    )


def _legend(y: float) -> str:
    names = (("trust", "instruction (trust transfer)"), ("data", "copied value (data)"), ("state", "state or order"))
    parts = []
    for k, (kind, label) in enumerate(names):
        x = 24 + 250 * k
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 34}" y2="{y}" stroke="{COLOURS[kind]}" stroke-width="3"/>')
        parts.append(_text(x + 42, y + 4, label, size=12, fill="#4a5568"))
    return "".join(parts)


def _text(
    x: float, y: float, text: str, *, size: int, weight: str = "normal", fill: str = "#1a202c", anchor: str = "start"
) -> str:
    style = f'font-size="{size}" font-weight="{weight}" fill="{fill}" text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


def _cut(text: str, limit: int) -> str:
    flat = "".join(c if c.isprintable() else " " for c in text)
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def draw_html(judged: Sequence[tuple[Analysis, Trace]]) -> str:
    """One page for several traces: choose one, click its steps. All text is shown as text, never as markup."""
    items = [_item(analysis, trace) for analysis, trace in judged]
    # Half of a surrogate pair, as JSON's \\ud800 gives it, has no place in a file: it is shown as a question mark.
    text = json.dumps(items, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")
    text = _INVISIBLE.sub(lambda m: f"⟨U+{ord(m.group()):04X}⟩", text)
    data = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    page = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return page.replace("__DATA__", data)


def _item(analysis: Analysis, trace: Trace) -> dict[str, object]:
    shown = shown_steps(analysis, trace)
    inside = set(shown)
    chain = set(zip(analysis.chain, analysis.chain[1:], strict=False))
    edges = [e for e in analysis.graph.edges if e.source in inside and e.target in inside]
    edges.sort(key=lambda e: ((e.source, e.target) in chain, e.type == "trust"))
    pair = analysis.pair
    steps = []
    for number in shown:
        step = trace.steps[number]
        touching = [e for e in edges if number in (e.source, e.target)]
        steps.append(
            {
                "n": number,
                "tool": step.tool,
                "arguments": json.dumps(dict(step.arguments), indent=1, ensure_ascii=False, default=str)[:20_000],
                "result": (step.result or "")[:20_000],
                "needle": pair.text if pair and number in (pair.source, pair.step) else "",
                "edges": [
                    f"{e.type} {e.source} → {e.target} ({e.weight:.2f}): {_cut(e.evidence, 160)}" for e in touching
                ],
            }
        )
    return {
        "id": trace.id,
        "score": analysis.score,
        "attack": analysis.is_attack,
        "task": trace.task_text()[:20_000],
        "why": explain(analysis, trace),
        "svg": draw_svg(analysis, trace),
        "steps": steps,
        "edges": [f"{e.source}-{e.target}" for e in edges],
    }
