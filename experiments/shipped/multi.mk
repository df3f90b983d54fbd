# Makes what two multilingual encoders, mini-multi and static-multi, begin as and learn from: pairs of
# an English text and its translation, and sentences of Wikipedia in 14 languages (the passages in
# Turkish are all in an evaluation set), with the vectors of a multilingual teacher. Neither encoder
# ships yet; work/shipped/trained/mini-multi is the target that trains it.
#
#   make -f experiments/shipped/Makefile multi DATA=folder/of/text
#
# Besides the texts of the Makefile that includes this file, DATA holds paragraphs of software help
# (help/help.LANGUAGE.tsv: key, tab, text).
MULTI := $(WORK)/multi
MULTI_TEACHER := multilingual-e5-small
HELP := cs da de el es fi fr hi hu id it ja ko nl pl pt ru sv ta te tr uk vi zh
INFERENCES := ar de es fi fr sw tr zh
CAPTIONS := cs de fr
TAUGHT := $(MULTI)/taught/translations $(MULTI)/taught/english $(MULTI)/taught/passages
PAIRS := $(HELP:%=$(MULTI)/help.%.tsv) $(INFERENCES:%=$(MULTI)/inferences.%.tsv) \
	$(CAPTIONS:%=$(MULTI)/captions.%.tsv)
MULTI_EVALUATION := $(EVALUATION),$(DATA)/tatoeba,$(DATA)/ntrex,$(DATA)/lareqa
MULTI_RECORDS = --exclude='$(MULTI_EVALUATION)' --keep_text --to=$@

.PHONY: multi
multi: $(TAUGHT) $(WORK)/start/mini-multi $(WORK)/start/static-multi

# Tables of pairs, English first: paragraphs with the same key, inferences and captions row by row.
$(MULTI)/help.%.tsv: $(DATA)/help/help.en.tsv $(DATA)/help/help.%.tsv
	mkdir -p $(@D)
	awk -F'\t' 'NR == FNR {en[$$1] = $$2; next} $$1 in en {print en[$$1] "\t" $$2}' $^ > $@
TRANSLATED := $(DATA)/multinli_translated/multinli.train
$(MULTI)/inferences.%.tsv: $(TRANSLATED).en.tsv $(TRANSLATED).%.tsv
	mkdir -p $(@D)
	paste $^ | awk -F'\t' 'NR > 1 {print $$1 FS $$4; print $$2 FS $$5}' > $@
DESCRIBED := $(DATA)/multi30k/train.lc.norm.tok
$(MULTI)/captions.%.tsv: $(DESCRIBED).en $(DESCRIBED).%
	mkdir -p $(@D)
	paste $^ > $@

# Sentences of Wikipedia without those of evaluation sets; a sample of each language shows the teacher
# the directions in which its languages differ. Without these its vectors teach better.
PREPARE_PASSAGES = cmlm prepare --input=$(DATA)/text/wiki_contexts.jsonl --detect_language=check \
	--min_sentences=1 $(MULTI_RECORDS)
$(MULTI)/whole:
	cmlm shrink $(MULTI_TEACHER) --weights=int8 --to=$@
$(MULTI)/read/passages: $(MULTI)/whole
	$(PREPARE_PASSAGES) --vocab_file=$<
$(MULTI)/sentences.jsonl: $(MULTI)/read/passages
	python -m experiments.shipped.sentences $< $@
$(MULTI)/sample.jsonl: $(MULTI)/sentences.jsonl
	awk -F'"' '++count[$$4] <= 1500' $< > $@
$(MULTI)/teacher: $(MULTI)/sample.jsonl
	cmlm shrink $(MULTI_TEACHER) --language_components=13 --input=$< --to=$@

# After 120 steps on the English texts alone, the mean cosine to the teacher is 0.708 with blocks 0, 8
# and 11, and 0.585 with 0, 4 and 8.
# Both students have one vocabulary, the teacher's, cut to the most frequent entries of these texts.
$(MULTI)/translations.txt: $(PAIRS)
	cut -f2 $^ > $@
$(MULTI)/english.txt: $(PAIRS)
	cut -f1 $^ | LC_ALL=C sort -u > $@
COUNTED_MULTI := $(MULTI)/translations.txt $(MULTI)/english.txt $(MULTI)/sentences.jsonl
CUT = cmlm shrink $< --vocab_size=50000 --input=$$(echo $(COUNTED_MULTI) | tr ' ' ,) --drop_prompts \
	--to=$@
$(WORK)/start/mini-multi: $(MULTI)/teacher $(COUNTED_MULTI)
	$(CUT) --layers=0,8,11 --embedding_width=176
$(WORK)/start/static-multi: $(MULTI)/teacher $(COUNTED_MULTI)
	$(CUT) --layers=none --hidden_size=168 --table=vectors

# A pair of which one text is, or holds, a sentence of an evaluation set is left out.
$(MULTI)/records/translations: $(PAIRS) | $(WORK)/start/mini-multi
	cmlm create-pairs --format=tsv --input=$$(echo $^ | tr ' ' ,) --drop_empty --repeated=pair \
		--languages=$$(echo $(addprefix en-,$(HELP) $(INFERENCES) $(CAPTIONS)) | tr ' ' ,) \
		--vocab_file=$(WORK)/start/mini-multi $(MULTI_RECORDS)
$(MULTI)/records/english: $(MULTI)/english.txt | $(WORK)/start/mini-multi
	cmlm create-documents --input=$< --lines=sentences --documents_by=line --language=en \
		--vocab_file=$(WORK)/start/mini-multi $(MULTI_RECORDS)
$(MULTI)/records/passages: | $(WORK)/start/mini-multi
	$(PREPARE_PASSAGES) --vocab_file=$(WORK)/start/mini-multi

# The teacher reads each English text once, whatever the number of its translations. Processors
# without bfloat16 are faster with PRECISION=float32.
PRECISION := bfloat16
TEACH = cmlm add-vectors $< --model=$(MULTI)/teacher --max_seq_length=64 --backend=tensorflow \
	--precision=$(PRECISION) --nokeep_text --to=$@
$(MULTI)/taught/translations: $(MULTI)/records/translations
	$(TEACH) --targets=first
$(MULTI)/taught/%: $(MULTI)/records/%
	$(TEACH)

$(WORK)/trained/%-multi: $(WORK)/start/%-multi $(TAUGHT)
	cmlm train shipped/$*_multi --init_checkpoint=$< --mode=train --to=$@
$(WORK)/small/%-multi: $(WORK)/trained/%-multi
	cmlm shrink $< --weights=int8 --drop_head --to=$@

# Their scores, beside the teacher's.
.PHONY: multi_scores
multi_scores: $(MULTI)/scores/mini-multi $(MULTI)/scores/static-multi $(MULTI)/scores/teacher
SCORE = cmlm evaluate $< --suites=sts,tatoeba,lareqa,xnli --data_dir=$(DATA) --to=$@ \
	--set='sts.tasks=[STS-B, SICK-R]' --set=xnli.split=dev
$(MULTI)/scores/teacher: $(MULTI)/teacher
	$(SCORE)
$(MULTI)/scores/%-multi: $(WORK)/small/%-multi
	$(SCORE)
