/* Embeds the text of cluster.sh in the program. Depends on nothing. */
#include "launch/cluster_internal.h"

__asm__(
    "  .section .rodata\n"
    "  .global cluster_script\n"
    "  .type cluster_script, %object\n"
    "cluster_script:\n"
    "  .incbin \"src/launch/cluster.sh\"\n"
    "  .byte 0\n"
    "  .size cluster_script, . - cluster_script\n"
    "  .previous\n");
