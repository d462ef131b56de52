"""Tables and columns of an nsys export (schema 3.20) that a capture of PyTorch's profiler fills or leaves NULL."""

SCHEMA_VERSION = "3.20.0"
COLLECTIVES = "TORCH_COLLECTIVES"  # a table of this project's own: what PyTorch asked of kernels of NCCL
CPU_DEVICE = -1  # the device of a capture made on a processor, whose activities are operators

_OPERATION = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
    "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER"
)

SCHEMA = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "ANALYSIS_DETAILS": (
        "globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, startTime INTEGER NOT NULL, stopTime INTEGER NOT NULL"
    ),
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER",
    "TARGET_INFO_GPU": (
        "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER, "
        "l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, "
        "uuid TEXT, chipName TEXT, threadsPerWarp INTEGER, computeMajor INTEGER, computeMinor INTEGER"
    ),
    "NVTX_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, "
        "color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, "
        "uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, "
        "floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
        "correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        f"{_OPERATION}, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, "
        "launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, "
        "gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER, "
        "dynamicSharedMemory INTEGER, localMemoryPerThread INTEGER, localMemoryTotal INTEGER, gridId INTEGER, "
        "sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        f"{_OPERATION}, bytes INTEGER, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, "
        "dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, "
        "migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER, copyCount INTEGER"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        f"{_OPERATION}, value INTEGER NOT NULL, bytes INTEGER, graphNodeId INTEGER, memKind INTEGER"
    ),
    "CUDA_GRAPH_NODE_EVENTS": (
        "start INTEGER NOT NULL, globalTid INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER"
    ),
    COLLECTIVES: "globalPid INTEGER, correlationId INTEGER, operation TEXT, bytes INTEGER, communicator INTEGER",
}
