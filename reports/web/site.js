// Filters of the launches. The address holds the choice, so that a filtered view can be shared as a link.

const form = document.getElementById("filters");
const NAMES = ["locale", "feature", "decision"];

function show() {
  const wanted = NAMES.filter((name) => form.elements[name].value).map((name) => [name, form.elements[name].value]);
  const fits = (each) => wanted.every(([name, value]) => !(name in each.dataset) || each.dataset[name].split(" ").includes(value));
  for (const each of document.querySelectorAll(NAMES.map((name) => `[data-${name}]`).join())) each.hidden = !fits(each);
  const all = [...document.querySelectorAll("[data-decision]")];
  document.getElementById("count").textContent = `${all.filter((each) => !each.hidden).length} of ${all.length} launches`;
  return wanted;
}

if (form) {
  const begun = new URLSearchParams(location.hash.slice(1));
  for (const name of NAMES) {
    const value = begun.get(name);
    if ([...form.elements[name].options].some((option) => option.value === value)) form.elements[name].value = value;
  }
  form.hidden = false;
  show();
  const chosen = () => history.replaceState(null, "", `#${new URLSearchParams(show())}`);
  form.addEventListener("change", chosen);
  form.addEventListener("reset", () => setTimeout(chosen));
}
