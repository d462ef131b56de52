"""A host that launches and waits, and a GPU that does one thing after the other, as a capture.

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
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Program:
    def __init__(self):
        self.capture, self.host_ns, self.gpu_ns, self._correlation = Synthetic(), 0, 0, 0

    @contextmanager
    def range(self, name: str):
        start = self.host_ns
        yield
        self.capture.range(name, start, self.host_ns)

    def launch(self, name: str, duration: float, host: float = 5, stream: int = 7) -> None:
        """A kernel, for the launch of which the host takes HOST in all, 4 µs of that in the call."""
        self.capture.kernel(name, stream=stream, **self._given("cudaLaunchKernel_v7000", 4, duration))
        self.host_ns += round((host - 4) * 1000)

    def wait(self) -> None:
        """torch.cuda.synchronize()."""
        self._call("cudaStreamSynchronize_v3020", max(self.gpu_ns - self.host_ns, 0) + 2000)

    def pause(self, duration: float) -> None:
        """Python alone."""
        self.host_ns += round(duration * 1000)

    def _call(self, name: str, duration: int) -> int:
        self._correlation += 1
        at, self.host_ns = self.host_ns, self.host_ns + duration
        self.capture.call(at, self._correlation, api=name, duration=duration)
        return at

    def _given(self, name: str, call: float, duration: float) -> dict[str, int]:
        at = self._call(name, round(call * 1000))
        start = max(self.gpu_ns, at + LATENCY)
        self.gpu_ns = start + round(duration * 1000)
        return {"at": at, "start": start, "duration": round(duration * 1000), "correlation": self._correlation}
