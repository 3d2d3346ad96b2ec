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
k jk hnh mh hijn ho
ml hl
n ki
nl j kon mn
n nhii kh
hoh mm i ioln k kmmh
k l
konn n ljl
jmkj knhi hmh l oi o
ljkh j
kim k
lkmh iki ij nm
n joo jmlh olj im hk
om nlh nii o onkl kj
kil l
mloh imll khlo n
mj ihh nolo
khnn o jnn nj hmon mm
m lo
mkhh jl oom nknl hkn jini
iji j hj mlil ion nmj
kii ooj o lmjj nj il
mnn lo mi
l oioh
omil jjij mlij
okko mji
ikml m hh
jli oknn km jm hi nkio
ihl hnoo klik okj
hnhi mkmi
o mn jj jm mo
n ojjm ii o
kl k hn h hk
mjni lji
oo mmno nj ok njkn hjk
nij jnkn kn h
oo okol
o h nn mmk h
nnil l h lmh o
ihjn lmik in
ohoj oi j nk k
h ik oklo
ko lo
no jh ji jl
moi omji
kkml jj nhk
ii llm kijm jkh
m m jnm m
hli nhh h
nn ko jn khmh
kn hh n
mhl mnk l jn k
mkm mjl hhok hli jlih hlhm
mo mihm ilk h
hk kk nmj ok lllm
jim h j h
o l hn nkj mi hm
mhk no mh
l hmj ij
in jli
jhm ohmh ijhn l
h hjji hj lmk
jo hkml in on
nino i ioj nkm
m hoo i
o lhk hini hlko mok
oj jlhn ij inkh m knmk
ljjo olhk
ijlm lh n oin jn
kilo o
nj hik nji kk n kkhn
i hmil jlmh m
hkj n khh jl n oo
kjk knh
oi hjk l moh iokl lnj
mi nohn njjj n k jhi
kiio kj hhhj omii
hhl h hn ln
nkio oni ojjl jo
hlk l n llmi lhm
jomi klj mm mh m
him kk
nmh okmi n hl
ihl mm
o oho k m
mhoi m mhmi i ok mm
o i
njhm mil hnm jkn kimn lh
ij i ok
no mk l mn jiin i
ilol onni oo hji
hhn mh ijh nkh momi
hnh ihj
hjm lmm ihh ihi onli j
ooho oj
k kilh mhk nj hi onii
mk m h
jlii nl
nin l mki lh
k oj kh n k
mnim ol m
njol ohoo lnl
ljii n
o ll io
kkkk li nljl kijm n
kjm mi
k i
mkmi lk il ill jnn nn
nn nko nnlo
i li km l
mh inn
llk knn mjh
jm kjio ikkm
mhhn him i kinl ljko o
hjno mjm hmik hli
jjji k ohji
oimk mn ihm ho
kjm hkk inh n o
lh kl ll jn j
joi lnm o hj
njjn ojk jno hlk kl
kim ookh i hinh mji
oj hnoo k jj
jhlh mkoj m jil
i i lhhi mj
no l hlm oh llom
jmhk jlii oomj m
jn lmni
nmhh inl mn n k iion
nmh mii oj kl joi hn
ni n l ll no
h ojkk nikj ih k
lio kjl m ikim
iih oo okk nl
hh nmn j lhmj ljlm inhj
ool hhlh ll
j kio klln n jh
inmj ii k mjmm
loj mj mli jnh
oj knim
knoi j knj jiio kjj
oom jklj hh
jki mjlk m kk
m i h
m l imhi hmoh im
h iono nmn jom
im nhh
ikon io mjn hn in hh
kj kji im lkii jh ioli
lmm i inn
khio lij
imm nn
jloo o ii m ko
mhh imh kkil n l
nn mmk jkoo iolh mj
im nnlo j k nn lljk
jnm jilo
hln om im kkn kolo
join lim noh m
j nijm mh
h mhj
jh m hilh ihin
ljk nmmm iokj nmjj
o ihnl
i kl jim
l olmo jjmi
j k jmm kjik i
hnm jllj i k
mih mol ljnm i njj
m nihh ohmn jjom
i lkn o oih km
j hi
k kj mh iio mn ljhi
jkn hhh k kkj
o kili klm
mj lool
ik n
hj ii lni oj ok
ol okon
ij h lnnl mkkk l jlh
nmm m o nln m
oj nkkk k moi okko
ok noi
jhmk lj jnn
konh h
mhlo nn
o mhmm mki h n
nh oij h lm
oljo mn
h mjkl mmlh nno
m o j omh jloo
jmoo iinn hn okk onn
jmnl hj nokl
nk m loi
ki mol ljkj
hk jiln nikl
oh n h h
mhk nm ilin jmkl ookj ojo
jkn ihoo h jim joh nmkh
hmi j moh
i oh ih
n inol
jno jin lki n oio mnl
llm ikm jl
mok hhjm kl ji knn
jkii ollm omk lhl kjn n
m ljl
mjjl ll k lh o om
j l hli lkoo
nihh i ojj mjll mi k
oih jljk hhl mmk llkk
j li
kon hhl khli
j l nli kino
okmh imlo ni jii ooo jj
kolk hlm ln nljm mm
n jnnj lmk oh nho
h ll hjn in
nl hj hkko nlm nhnh
jlk mioh nnj
honi mool
hk ionn
khm oi ohom im jl mk
jn ik nhm
kll h in
hi lj h k
j kjj mj mhi il
k oj mik
kokh lo iin
io hll k
kmjj jmnn mn o hmn
oml inoi jhn n k kmo
k ijh iihh mlki
nmo i
kj m iin
nhim onn mni
klij nm nim ll lojm mi
k hm onil jmi h inn
o n holh
kmnn khm
ojkj knl nkm
hoo nl nlnl ml
lim lh lh
knki kihi mjn o l n
nojo ij
ioj mm mk
olm nhk ij
hnk hjj io lhh j kilk
n jjlm llhh
lm onnh
kmh o n ojnm
himi lkoh jni nh k
ikjh o no ikk hnii
i k mmh
ill i im ikl
liok m l
nhl knnl oook nnin o mnlk
h mkio mn ojn
k jkk o nm
jij hlh
omil h nlm h jhih j
kk mk ni lli mnnn o
jii niki l homh i
nk ioo l
mh n oilh lko h
mhn mnl oi
k jh
knm knhk hh k nonk mnk
nl hihn i
nnl ih nkl jj
inio kion
oknm mj jok
ill j j n
ji j n jhoh kok
mi jln
o lnji
ih h ho jo kohh
ii knl knlo m l
koh h ll i io
m oh oj j k
l khim kn lo onhm
lon mlhi hlol k ik
lh hmi hl jimi lkln hko
l hh
i jioo lmk kkmm jh k
mh lhjm oomn mmko ool khjj
kolm m llnh oh
kh n hj i ih nji
