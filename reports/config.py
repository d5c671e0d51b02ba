"""Configuration of the disclosure report."""

from pydantic import Field

from pretrain.config import Config, Line


class ReportConfig(Config):
    """Contact for the report, its intended use, and the words that it may show."""

    contact: Line = Field(description="who answers questions about this launch")
    intended_use: Line = Field(description="one sentence for the front sheet")
    show_new_words: bool = Field(
        default=False, description="list the discovered words that were added; what was dropped is never shown"
    )
