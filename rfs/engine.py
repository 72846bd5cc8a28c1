"""The fast engine, with the partners that reply to the model: calculator, games, tools."""

from dataclasses import replace
from functools import partial

from reasoning_from_scratch import rollouts
from reasoning_from_scratch.fast.engine import FAST as WITHOUT_PARTNERS
from rfs.tasks.environments.conversation import partner_factory

FAST = replace(WITHOUT_PARTNERS, make_partners=partner_factory)
sample_groups = partial(rollouts.sample_groups, engine=FAST)
