"""Graph mode: what `quantize_fx` is made of. It needs tangrad-fx; nothing else here does."""
