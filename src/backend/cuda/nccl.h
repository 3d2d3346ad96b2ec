/* NCCL as a backend's wire. Depends on backend, wire. */
#ifndef BACKEND_CUDA_NCCL_H
#define BACKEND_CUDA_NCCL_H

#include "backend/backend.h"
#include "backend/device_comm.h"

extern const DeviceCommOps nccl_wire;

#endif
