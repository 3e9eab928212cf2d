/* How results of the search are ordered: as usual, and of equal ones the shorter title first. */
var Scorer = {
  score: ([docname, title, anchor, descr, score]) => score - title.length / 1000,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
