/* NCCL as the DeviceComm of the CUDA backend. Depends on backend.h, device_comm.h. */
#ifndef BACKEND_CUDA_NCCL_H
#define BACKEND_CUDA_NCCL_H

#include "backend/backend.h"
#include "backend/device_comm.h"

extern const DeviceCommOps nccl_comm;

#endif
