"""A posterior as a small HTML table, for notebooks. Every name is escaped: columns are named by users."""

from __future__ import annotations

from html import escape

from dpjax.inference.fitted import Fitted

#: Rows of a table: a regression with 30 features has 527 parameters.
MOST_ROWS = 40


def to_html(posterior: Fitted, head: tuple[str, ...], rows: list[tuple[str, ...]], title: str) -> str:
    """The title, a table of at most `MOST_ROWS` rows, then remarks and warnings.

    Args:
        posterior: for its remarks and warnings.
        head, rows: cells of the head and of each parameter, as `Posterior.table` shows them.
        title: one line of text.
    """
    left, right = "text-align:left", "text-align:right"
    cells = lambda tag, texts: "".join(
        f'<{tag} style="{left if i < 2 else right}">{escape(text)}</{tag}>' for i, text in enumerate(texts)
    )
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows[:MOST_ROWS])
    lines = [f"... and {len(rows) - MOST_ROWS} more: print(posterior.table())"] if len(rows) > MOST_ROWS else []
    lines += posterior.remarks()
    warnings = "".join(
        f'<div style="color:#b00020">not to be trusted yet: {escape(line)}</div>' for line in posterior.warnings()
    )
    return (
        f"<div><div>{escape(title)}</div>{warnings}<table><thead><tr>{cells('th', head)}</tr></thead>"
        f"<tbody>{body}</tbody></table>{''.join(f'<div>{escape(line)}</div>' for line in lines)}</div>"
    )
