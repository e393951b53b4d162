"""What is looked at during training: figures of every update, the pulse, the live evaluation, alarms, progress."""
