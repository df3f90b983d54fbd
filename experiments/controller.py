"""Orbit's outer loop, on the same steps whether a training was stopped meanwhile or not."""

from collections.abc import Callable
from typing import Any

import orbit


class Controller(orbit.Controller):
    """Evaluates at multiples of the interval; Orbit counts the interval from where a run begins.

    Loops end at multiples of `steps_per_loop` likewise.
    """

    def __init__(
        self,
        *,
        unevaluated: Callable[[int], bool],
        before_saving: Callable[[], None] = lambda: None,
        **kwargs: Any,
    ) -> None:
        """Wraps Orbit's controller.

        Args:
          unevaluated: whether a step that a run begins with lacks its evaluation.
          before_saving: called before each checkpoint.
          **kwargs: see `orbit.Controller`.
        """
        self._unevaluated = unevaluated
        self._before_saving = before_saving
        super().__init__(**kwargs)

    @property
    def steps_per_loop(self) -> int:
        """Steps to the end of the loop that the current step is in."""
        return self._steps_per_loop - int(self.global_step.numpy()) % self._steps_per_loop

    def train_and_evaluate(
        self, train_steps: int, eval_steps: int = -1, eval_interval: int | None = None
    ) -> orbit.runner.Output | None:
        """Trains up to a step and evaluates every `eval_interval` steps, and after the last one.

        First of all the step that the training begins with, if it is one of those and a stop kept
        it from being evaluated.
        """
        interval, output = eval_interval or train_steps, None
        step = int(self.global_step.numpy())
        due = step == train_steps or (0 < step < train_steps and step % interval == 0)
        if due and self._unevaluated(step):
            output = self.evaluate(steps=eval_steps)
        while step < train_steps:
            aim = min(train_steps, step - step % interval + interval)
            self.train(steps=aim, checkpoint_at_completion=False)
            output = self.evaluate(steps=eval_steps)
            step = int(self.global_step.numpy())
        self._maybe_save_checkpoint(check_interval=False)
        return output

    def _maybe_save_checkpoint(self, check_interval: bool = True) -> bool:
        manager, step = self.checkpoint_manager, int(self.global_step.numpy())
        last = manager and manager._last_checkpoint_step
        if not check_interval or last is None or step >= last + manager.checkpoint_interval:
            self._before_saving()
        return super()._maybe_save_checkpoint(check_interval)
