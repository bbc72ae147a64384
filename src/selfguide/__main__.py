"""``python -m selfguide`` is ``selfguide``; also what torchrun and accelerate start: ``torchrun … -m selfguide train …``."""

from selfguide.cli.main import run

if __name__ == "__main__":
    run()
