"""`rfs train`: reads the flags, trains, and says how the run ended."""

from rfs.commands.ending import run_summary, say_end
from rfs.commands.smoke import smoke_summary
from rfs.commands.train_options import TrainOptions
from rfs.config import RunConfig, part_of
from rfs.run import start


def train_command(options: TrainOptions) -> int:
    """Trains, and says how the run ended."""
    config = part_of(options, RunConfig)
    result = start.train(config)
    if config.smoke and result.rows and result.writes and not result.stopped:
        print(smoke_summary(config, str(result.folder), result.rows, result.outlook))
    return say_end(result, run_summary(result.folder, result.rows))
