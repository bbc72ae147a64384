"""What the parts of the method ``fused`` are worth: ablation, evidence, other domains, small texts and cost."""
