"""Names of PyTorch in docs/deviations.md, and libraries in docs/libraries.md.

Written by tools/documented_names.py.
"""

# anchor of a section -> names below `torch`
SECTIONS: dict[str, str] = {
    "parts-that-are-not-installed": (
        "Tensor.backward Tensor.data Tensor.sum Tensor.view ao.quantization autograd.backward "
        "autograd.profiler compile complex32 cuda.Stream float4_e2m1fn_x2 float8_e4m3fn "
        "float8_e5m2 float8_e8m0fnu int1 int7 jit jit.script jit.trace profiler "
        "set_float32_matmul_precision set_flush_denormal set_num_interop_threads sum uint1 uint7 "
        "use_deterministic_algorithms"
    ),
    "random-numbers": (
        "Generator Tensor.bernoulli Tensor.bernoulli_ Tensor.cauchy_ Tensor.cpu "
        "Tensor.exponential_ Tensor.geometric_ Tensor.log_normal_ Tensor.multinomial "
        "Tensor.normal_ Tensor.random_ Tensor.uniform_ bernoulli binomial cpu "
        "distributions.bernoulli distributions.binomial distributions.multinomial "
        "distributions.poisson dropout initial_seed manual_seed multinomial nn.Dropout "
        "nn.functional.dropout nn.functional.rrelu normal poisson quasirandom.SobolEngine rand "
        "rand_like randint randint_like randn randn_like randperm rrelu"
    ),
    "graphs-and-loops": (
        "Tensor.view cond export export.export export.save nn.functional.linear while_loop"
    ),
    "processes": (
        "multiprocessing.set_sharing_strategy nn.SyncBatchNorm utils.data.DataLoader "
        "utils.data.argument_validation utils.data.runtime_validation"
    ),
    "devices": (
        "Tensor.cpu backends.cuda.preferred_blas_library backends.cudnn.allow_tf32 "
        "backends.cudnn.enabled cpu cuda.CUDAGraph"
    ),
    "beyond-pytorch": "utils.data.DataLoader",
    "tools": "hub.load load",
    "text": "Size float32",
    "overriding": (
        "Tensor.__getitem__ Tensor.add Tensor.shape.__get__ add nn.functional.linear "
        "nn.functional.relu"
    ),
    "what-is-refused": (
        "Tensor.conj_physical_ Tensor.layout Tensor.logical_not_ Tensor.nan_to_num_ Tensor.triu_ "
        "conj_physical_ ctc_loss distributions.ContinuousBernoulli embedding embedding_bag empty "
        "gradient layout masked.sum nan_to_num_ nn.functional.ctc_loss nn.functional.embedding "
        "nn.functional.embedding_bag nn.functional.linear nn.functional.scaled_grouped_mm "
        "nn.functional.scaled_mm nn.functional.threshold_ optim.swa_utils.AveragedModel "
        "set_printoptions strided threshold_ zeros"
    ),
    "results": (
        "Tensor.abs Tensor.addbmm Tensor.addmm Tensor.addmv Tensor.angle Tensor.as_strided_scatter "
        "Tensor.asinh Tensor.baddbmm Tensor.cholesky_inverse Tensor.copysign Tensor.det "
        "Tensor.digamma Tensor.div Tensor.eig Tensor.expand Tensor.expm1 Tensor.floor_divide "
        "Tensor.hardshrink Tensor.heaviside Tensor.histc Tensor.igamma Tensor.igammac "
        "Tensor.index_put_ Tensor.logcumsumexp Tensor.logit Tensor.logsumexp Tensor.matrix_exp "
        "Tensor.maximum Tensor.minimum Tensor.norm Tensor.polygamma Tensor.prod Tensor.resize_ "
        "Tensor.scatter_reduce Tensor.sigmoid Tensor.squeeze_ Tensor.std Tensor.stft Tensor.sub "
        "Tensor.svd Tensor.t_ Tensor.tanh Tensor.triangular_solve Tensor.unsqueeze_ Tensor.var abs "
        "addbmm addmm addmv angle as_strided_scatter asinh baddbmm "
        "binary_cross_entropy_with_logits celu cholesky_inverse copysign ctc_loss det digamma "
        "distributions.ContinuousBernoulli distributions.GeneralizedPareto "
        "distributions.LowRankMultivariateNormal distributions.MultivariateNormal "
        "distributions.VonMises distributions.Wishart div eig embedding_bag expm1 floor_divide "
        "func.linearize func.vmap hardshrink heaviside histc igamma igammac index_put_ linalg.det "
        "linalg.eig linalg.eigh linalg.matrix_exp linalg.norm linalg.svd lobpcg logcumsumexp logit "
        "logsumexp matrix_exp maximum minimum nn.CrossMapLRN2d nn.DataParallel "
        "nn.functional.binary_cross_entropy_with_logits nn.functional.celu nn.functional.ctc_loss "
        "nn.functional.elu nn.functional.embedding_bag nn.functional.gelu "
        "nn.functional.grid_sample nn.functional.hardshrink nn.functional.hardsigmoid "
        "nn.functional.hardtanh nn.functional.interpolate nn.functional.linear "
        "nn.functional.linear_cross_entropy nn.functional.pixel_unshuffle nn.functional.relu6 "
        "nn.functional.selu nn.functional.sigmoid nn.functional.silu "
        "nn.functional.soft_margin_loss nn.functional.softshrink nn.functional.softsign "
        "nn.functional.tanh nn.parallel.data_parallel nn.utils.remove_spectral_norm norm "
        "optim.lr_scheduler.CyclicLR optim.lr_scheduler.SequentialLR optim.swa_utils.AveragedModel "
        "optim.swa_utils.get_swa_avg_fn optim.swa_utils.get_swa_multi_avg_fn pixel_unshuffle polar "
        "polygamma prod scatter_reduce selu sigmoid special.airy_ai special.bessel_j1 "
        "special.digamma special.erfcx special.expm1 special.logit special.logsumexp "
        "special.polygamma special.zeta std stft sub svd tanh triangular_solve "
        "utils.data.random_split var vmap"
    ),
    "ops-of-ones-own": (
        "Tensor ao.quantization.Tensor compile fft.Tensor func.grad func.jvp library "
        "nn.functional.Tensor optim.lr_scheduler.Tensor optim.swa_utils.Tensor special.Tensor"
    ),
    "files": "load save",
    "mixed-precision-checkpoints-measuring": (
        "GradScaler Tensor.backward Tensor.cpu amp.GradScaler autograd.backward autograd.grad "
        "autograd.no_grad cpu nn.GRU nn.LSTM no_grad utils.checkpoint"
    ),
    "not-there-yet": "Tensor.index jagged",
    "what-pytorchs-own-tests-ask-for": (
        "Tensor._cdata Tensor.cpu Tensor.grad Tensor.index_reduce Tensor.put_ Tensor.resize_ "
        "Tensor.scatter_reduce Tensor.to_dense Tensor.unique autograd.functional.jacobian "
        "autograd.grad complex32 complex64 cpu empty_like float16 func.functional_call func.grad "
        "func.jacfwd func.jvp func.vjp func.vmap fx.symbolic_trace index_reduce nn.functional "
        "nn.functional.elu_ nn.functional.grad nn.functional.interpolate nn.functional.leaky_relu_ "
        "nn.functional.max_unpool1d nn.functional.threshold_ nn.grad ops.aten.add.Tensor rand_like "
        "scatter_reduce threshold_ uint8 unique use_deterministic_algorithms vmap zeros_like"
    ),
    "quantization": (
        "Tensor.add Tensor.sigmoid Tensor.tanh add ao.quantization.HistogramObserver "
        "ao.quantization.convert fake_quantize_per_tensor_affine nn.functional.sigmoid "
        "nn.functional.tanh nn.quantized quantization.HistogramObserver quantization.convert "
        "quint4x2 sigmoid strided tanh"
    ),
    "pipes-and-text": "utils.data.datapipes",
}

# Packages of which a program gives PyTorch's results.
LIBRARIES = (
    "transformers timm torchvision lightning accelerate peft diffusers safetensors torchmetrics "
    "tensordict einops captum kornia open_clip sentence_transformers opacus "
    "segmentation_models_pytorch gpytorch torchdiffeq pyro nflows stable_baselines3 x_transformers "
    "tokenizers sentencepiece monai skorch torch_geometric vit_pytorch"
)
