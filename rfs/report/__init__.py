"""What a run reports: metrics, alarms, progress, and pages for people.

write_iteration(folder, split, iteration, groups, tokenizer)   after each step and evaluation
record_probes(folder, step, model, tokenizer, problems)        whenever the report is rewritten
write_run_report(folder)                                       report.html, from the files alone
newest_run(folder)                                             its most recently active run
"""

from .iteration import write_iteration
from .probes import record_probes
from .run_files import newest_run
from .run_report import write_run_report

__all__ = ["newest_run", "record_probes", "write_iteration", "write_run_report"]
