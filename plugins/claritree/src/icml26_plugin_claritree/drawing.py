"""A fitted tree as an SVG drawing: boxes for cuts, and leaves with their equation, rows and error."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from icml26_plugin_claritree.tree import LEAF, Tree

CHARACTER = 6.7  # width of a character of 11 px monospace, pixels
LINE = 15  # pixels between two lines of text
PADDING = 8
GAP = 14  # between neighbouring leaves
LEVEL = 46  # between the bottom of a box and the top of its children


def _leaf_lines(tree: Tree, node: int, names: Sequence[str], digits: int) -> list[str]:
    leaf = int(tree.leaf[node])
    lines = [
        f"leaf {leaf}",
        f"n = {tree.n[node]}, RMSE = {np.sqrt(tree.mse[leaf]):.{digits}g}",
        f"y = {tree.intercept[leaf]:.{digits}g}",
    ]
    for j, value in zip(tree.columns.continuous, tree.coef[leaf], strict=True):
        if value != 0.0:
            lines.append(f"  {'-' if value < 0 else '+'} {abs(value):.{digits}g} {names[j]}")
    return lines


def tree_svg(tree: Tree, names: Sequence[str], digits: int = 3) -> str:
    """SVG text of the tree; `names` are those of the input columns. Leaves are tinted by their share of the training rows."""
    texts: dict[int, list[str]] = {}
    level = np.zeros(tree.feature.size, dtype=int)
    for node in range(tree.feature.size):
        if tree.feature[node] == LEAF:
            texts[node] = _leaf_lines(tree, node, names, digits)
        else:
            condition = tree.columns.describe(int(tree.feature[node]), float(tree.threshold[node]), names)
            texts[node] = [condition, f"n = {tree.n[node]}"]
            level[tree.left[node]] = level[tree.right[node]] = level[node] + 1
    width = {node: PADDING * 2 + CHARACTER * max(map(len, lines)) for node, lines in texts.items()}
    height = {node: PADDING * 2 + LINE * len(lines) for node, lines in texts.items()}
    centre = _centres(tree, width)
    top = {node: GAP + level[node] * (PADDING * 2 + LINE * 2 + LEVEL) for node in texts}
    total_width = max(centre[node] + width[node] / 2 for node in texts) + GAP
    total_height = max(top[node] + height[node] for node in texts) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_width:.0f} {total_height:.0f}" width="{total_width:.0f}" '
        f'height="{total_height:.0f}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11" role="img">',
        f"<title>Piecewise linear regression tree with {tree.n_leaves} leaves</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for node in texts:
        if tree.feature[node] != LEAF:
            for child, label in ((int(tree.left[node]), "yes"), (int(tree.right[node]), "no")):
                x1, y1, x2, y2 = centre[node], top[node] + height[node], centre[child], top[child]
                parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#8a8f98"/>')
                parts.append(
                    f'<text x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 - 3:.1f}" text-anchor="middle" '
                    f'fill="#5b6270">{label}</text>'
                )
    for node, lines in texts.items():
        parts.extend(_box(node, tree, lines, centre[node] - width[node] / 2, top[node], width[node], height[node]))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _box(node: int, tree: Tree, lines: Sequence[str], x: float, y: float, width: float, height: float) -> list[str]:
    """One node: a rounded rectangle and its lines."""
    fill = "#ffffff"
    if tree.feature[node] == LEAF:
        share = tree.n[node] / tree.n[0]
        fill = f"rgb({round(240 - 60 * share)},{round(247 - 20 * share)},255)"
    parts = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="5" fill="{fill}" stroke="#3b4252"/>'
    ]
    for i, line in enumerate(lines):
        weight = ' font-weight="bold"' if i == 0 else ""
        parts.append(
            f'<text x="{x + PADDING:.1f}" y="{y + PADDING + 11 + LINE * i:.1f}" xml:space="preserve" '
            f'fill="#1f2430"{weight}>{escape(line)}</text>'
        )
    return parts


def _centres(tree: Tree, width: dict[int, float]) -> dict[int, float]:
    """Horizontal centre of each node: leaves side by side, a parent above the middle of its children."""
    centre: dict[int, float] = {}
    edge = float(GAP)
    for node in (int(n) for n in np.flatnonzero(tree.feature == LEAF)):  # depth first, so from left to right
        centre[node] = edge + width[node] / 2
        edge += width[node] + GAP
    for node in reversed(range(tree.feature.size)):  # children have greater numbers
        if tree.feature[node] != LEAF:
            middle = (centre[int(tree.left[node])] + centre[int(tree.right[node])]) / 2
            centre[node] = max(middle, GAP + width[node] / 2)
    return centre
