"""What modules of models need to be quantized: hooks handed on, islands among float layers."""
