/* The table of deviations: rows that have all words and the chosen subject. */
(function () {
  const words = document.getElementById("words");
  const subject = document.getElementById("subject");
  const count = document.getElementById("count");
  const rows = Array.from(document.querySelectorAll("#deviations tbody tr"));
  const texts = rows.map((row) => row.textContent.toLowerCase());
  function filter() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      const fits = !subject.value || row.cells[0].textContent === subject.value;
      const visible = fits && wanted.every((word) => texts[i].includes(word));
      row.hidden = !visible;
      shown += visible;
    });
    count.textContent = shown + " of " + rows.length;
  }
  words.addEventListener("input", filter);
  subject.addEventListener("change", filter);
  filter();
})();
