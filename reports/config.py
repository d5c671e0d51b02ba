"""Configuration of the disclosure report."""

from pydantic import Field

from pretrain.config import Config, Line

NOBODY_YET = "who answers for this launch"  # contact of a drafted launch file


class ReportConfig(Config):
    """Contact and intended use, for the report, and permission to list discovered words."""

    contact: Line = Field(description="contact for questions about this launch")
    intended_use: Line = Field(description="one sentence for the front sheet")
    show_new_words: bool = Field(
        default=False, description="list the discovered words that were added; dropped words are never shown"
    )
