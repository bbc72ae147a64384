"""``make bench``: the short measurements that need no data but the package's own."""

from benchmarks import training_speed

if __name__ == "__main__":
    training_speed.main()
