"""Blocks of the launch file that say what a launch must pass and may cost."""

from typing import Annotated

from pydantic import Field, PositiveInt

from pretrain.config import Amount, Config, Fraction

MOST_DAYS = 36_500


class BudgetConfig(Config):
    """Most that one device may lose in any ``days`` days, over all launches. Text is kept no longer than that."""

    rho: Amount = Field(description="ceiling on device-level rho in any window")
    epsilon: Amount = Field(
        description="ceiling on epsilon of one device over all releases in any window, at policy.population_delta"
    )
    days: Annotated[int, Field(ge=1, le=MOST_DAYS)] = Field(description="length of a window, and of what text is kept")


class PolicyConfig(Config):
    """The gates a launch must pass. A gate without evidence fails."""

    max_rho: Amount = Field(description="ceiling on this launch's device-level rho")
    max_total_epsilon: Amount = Field(
        description="ceiling on the launch's one number: epsilon of one device over all releases, words found locally "
        "among them, at mechanism.delta"
    )
    population_delta: Fraction = Field(
        description="delta at which budget.epsilon and population_max_epsilon hold, over all launches that count"
    )
    budget: BudgetConfig | None = Field(
        default=None, description="ceiling on what one device loses in any window of so many days, over all launches"
    )
    population_max_rho: Amount | None = Field(
        default=None, description="ceiling on what one device loses to all launches on this population there ever are"
    )
    population_max_epsilon: Amount | None = Field(
        default=None, description="the same over all releases, words too; stated beside population_max_rho, and only so"
    )
    max_discovery_epsilon0: Amount | None = Field(
        default=None, description="ceiling on the local epsilon of one message; stated where discovery is local"
    )
    population_max_discovery_epsilon: Amount | None = Field(
        default=None,
        description="ceiling on what one typed word loses to discovery, added up over all launches that may read it: "
        "those in any window of budget.days, and without a budget all",
    )
    min_canary_rank: PositiveInt = Field(
        le=1_000_000_000,
        description="a canary on one device must not rank better than this among the random continuations",
    )
    min_top1_gain: float = Field(
        description="lower end of the interval of private minus starting-point top-1 recall must exceed this"
    )
    max_top3_loss: Annotated[float, Field(ge=0.0)] = Field(
        default=0.0, description="guardrail: top-3 recall may fall by this much against the starting point"
    )
    min_distinct_first_words: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        description="different words that the model puts first on held-out text, at least"
    )
    min_ngram_gain: float = Field(
        description="lower end of the interval of top-1 recall, private minus public n-gram alone and mixed with the "
        "start, at least",
    )
    min_new_word_top3: Fraction | None = Field(
        default=None,
        description="lower end of the interval of top-3 recall where a discovered word is typed, at least; none: no "
        "gate",
    )
    approvals: PositiveInt = Field(
        default=1,
        le=9,
        description="different persons among the reviewers who must approve the report; 2 is the two-person rule",
    )
    cover_everything: bool = Field(
        default=False,
        description="every use of private text spends from a budget: a device's or, in local discovery, a typed word's;"
        " what does not holds the launch",
    )


# Of each arm of an experiment that logged anything, at least.
LEAST_BUCKETS = 20
# Relative loss of any other metric that an experiment may not show.
MOST_GUARDRAIL_LOSS = 0.01


class ExperimentConfig(Config):
    """Between approval and everybody: some devices get the model, and what keyboards then log decides, once."""

    share: Annotated[float, Field(gt=0.0, le=0.5)] = Field(description="of buckets of devices that get the model")
    days: Annotated[int, Field(ge=1, le=90)] = Field(
        description="whole days (UTC) whose logged counts decide, from the day after it begins"
    )
    min_gain: Annotated[float, Field(ge=-0.5, le=1.0)] = Field(
        description="lower end of the interval of the relative change of what decides a feature must exceed this; "
        "better counts as more, so below 0 it must be shown not to be worse by so much, from 0 on to be better"
    )
