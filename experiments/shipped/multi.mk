# Makes what a multilingual student learns from: pairs of an English text and its translation, and
# sentences of Wikipedia in 14 languages (the passages in Turkish are all in an evaluation set), with
# the vectors of a multilingual teacher.
#
#   make -f experiments/shipped/Makefile multi DATA=folder/of/text MULTI_VOCABULARY=encoder/folder
#
# MULTI_VOCABULARY is the student's, as --vocab_file. Besides the texts of the Makefile that includes
# this file, DATA holds paragraphs of software help (help/help.LANGUAGE.tsv: key, tab, text).
MULTI := $(WORK)/multi
MULTI_TEACHER := multilingual-e5-small
HELP := cs da de el es fi fr hi hu id it ja ko nl pl pt ru sv ta te tr uk vi zh
INFERENCES := ar de es fi fr sw tr zh
CAPTIONS := cs de fr
MULTI_EVALUATION := $(EVALUATION),$(DATA)/tatoeba,$(DATA)/ntrex,$(DATA)/lareqa
MULTI_RECORDS = --vocab_file=$(MULTI_VOCABULARY) --exclude='$(MULTI_EVALUATION)' --keep_text --to=$@

.PHONY: multi
multi: $(MULTI)/taught/translations $(MULTI)/taught/passages

# Tables of pairs, English first: paragraphs with the same key, hypotheses and captions row by row.
$(MULTI)/help.%.tsv: $(DATA)/help/help.en.tsv $(DATA)/help/help.%.tsv
	mkdir -p $(@D)
	awk -F'\t' 'NR == FNR {en[$$1] = $$2; next} $$1 in en {print en[$$1] "\t" $$2}' $^ > $@
TRANSLATED := $(DATA)/multinli_translated/multinli.train
$(MULTI)/inferences.%.tsv: $(TRANSLATED).en.tsv $(TRANSLATED).%.tsv
	mkdir -p $(@D)
	paste $^ | tail -n +2 | cut -f2,5 > $@
DESCRIBED := $(DATA)/multi30k/train.lc.norm.tok
$(MULTI)/captions.%.tsv: $(DESCRIBED).en $(DESCRIBED).%
	mkdir -p $(@D)
	paste $^ > $@

# A pair of which one text is, or holds, a sentence of an evaluation set is left out.
$(MULTI)/records/translations: \
		$(HELP:%=$(MULTI)/help.%.tsv) $(INFERENCES:%=$(MULTI)/inferences.%.tsv) \
		$(CAPTIONS:%=$(MULTI)/captions.%.tsv)
	cmlm create-pairs --format=tsv --input=$$(echo $^ | tr ' ' ,) --drop_empty --repeated=pair \
		--languages=$$(echo $(addprefix en-,$(HELP) $(INFERENCES) $(CAPTIONS)) | tr ' ' ,) \
		$(MULTI_RECORDS)
$(MULTI)/records/passages: $(DATA)/text/wiki_contexts.jsonl
	cmlm prepare --input=$< --detect_language=check --min_sentences=1 $(MULTI_RECORDS)

# The teacher reads each English text once, whatever the number of its translations.
$(MULTI)/taught/translations: $(MULTI)/records/translations
	cmlm add-vectors $< --model=$(MULTI_TEACHER) --targets=first --nokeep_text --to=$@
$(MULTI)/taught/passages: $(MULTI)/records/passages
	cmlm add-vectors $< --model=$(MULTI_TEACHER) --nokeep_text --to=$@
