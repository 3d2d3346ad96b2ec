ni nik no mj
lni jl
kn jnkn ml m io hon
k on
hn ohmo
nmjm mh jnm
knh ji
lo lhk
i j jko mmn
l hkni
oi oni io mk o
hiho m mjk io moo
