"""A host that launches, waits, copies and allocates, and a GPU that does one thing after the other, as a capture.

Times in arguments are microseconds.
"""

from __future__ import annotations

from contextlib import contextmanager

from tests.kernel_tables.synthetic import Synthetic

LATENCY = 7_000  # ns from a launch to the start of its kernel on an idle GPU
GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT"
SGEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)"
ADAM = (
    "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor>"
)
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, MulFunctor<float>>>(int)"
SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>(float*, float const*, int)"
)
CAST = "void at::native::unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Program:
    def __init__(self):
        self.capture = Synthetic()
        self._host = self._gpu = 0
        self._correlation = 0

    @contextmanager
    def range(self, name: str):
        start = self._host
        yield
        self.capture.range(name, start, self._host)

    def launch(self, name: str, duration: float, host: float = 5, stream: int = 7) -> None:
        """A kernel, for the launch of which the host takes HOST in all, 4 µs of that in the call."""
        self.capture.kernel(name, stream=stream, **self._given("cudaLaunchKernel_v7000", 4, duration))
        self._host += round((host - 4) * 1000)

    def replay(self, names: list[str], duration: float, gap: float) -> None:
        """A CUDA graph: one launch of many kernels, with gaps of the GPU's own between them."""
        first = self._given("cudaGraphLaunch_v10000", 8, duration)
        for name in names:
            self.capture.kernel(name, **first | {"start": self._gpu, "duration": round(duration * 1000)})
            self._gpu += round((duration + gap) * 1000)
        self._gpu -= round(gap * 1000)

    def wait(self) -> None:
        """torch.cuda.synchronize()."""
        self._call("cudaStreamSynchronize_v3020", max(self._gpu - self._host, 0) + 2000)

    def item(self) -> None:
        """tensor.item(): a copy of four bytes, and waiting for it."""
        self.copy(4, 1, kind=2, pageable=True)
        self.wait()

    def copy(self, size: int, duration: float, kind: int = 1, pageable: bool = False) -> None:
        """A copy, on the stream of the kernels; KIND 1 to the GPU, 2 to the host."""
        host_memory = 0 if pageable else 1
        memory = {"source": host_memory, "target": 2} if kind == 1 else {"source": 2, "target": host_memory}
        given = self._given("cudaMemcpyAsync_v3020", 4, duration)
        self.capture.memcpy(size=size, copy_kind=kind, **memory, **given)

    def reallocate(self, took: float) -> None:
        """torch.cuda.empty_cache() and what follows from it: cudaFree waits for the GPU, cudaMalloc takes its time."""
        self.free()
        self.allocate(took)

    def free(self) -> None:
        self._call("cudaFree_v3020", max(self._gpu - self._host, 0) + 20_000)

    def allocate(self, took: float) -> None:
        self._call("cudaMalloc_v3020", round(took * 1000))

    def pause(self, duration: float) -> None:
        """Python alone."""
        self._host += round(duration * 1000)

    def _call(self, name: str, duration: int) -> int:
        self._correlation += 1
        at, self._host = self._host, self._host + duration
        self.capture.call(at, self._correlation, api=name, duration=duration)
        return at

    def _given(self, name: str, call: float, duration: float) -> dict[str, int]:
        at = self._call(name, round(call * 1000))
        start = max(self._gpu, at + LATENCY)
        self._gpu = start + round(duration * 1000)
        return {"at": at, "start": start, "duration": round(duration * 1000), "correlation": self._correlation}
