"""Configuration of the disclosure report."""

from pydantic import Field

from pretrain.config import Config


class ReportConfig(Config):
    """Who answers for the report and which words it may show."""

    contact: str = Field(description="who answers questions about this launch")
    intended_use: str = Field(description="one sentence for the front sheet")
    show_new_words: bool = Field(
        default=False, description="list discovered words; leave off until a person has reviewed them"
    )
